"""``fedstein bench --flower``: phases from records and logs, bytes by kind, and the page."""

from __future__ import annotations

import os

import pytest

from fedstein.federation.channel import KINDS
from fedstein.studies.bench import on_flower
from fedstein.studies.bench.on_flower import ANSWERED, Phases, bytes_by_kind, cpu_seconds, phases
from fedstein.studies.bench.write_flower import markdown


def test_phases_are_those_of_the_slowest_node() -> None:
    log = "fedstein: ask, round 2: answered in 0.25 s\nfedstein: train, round 2: answered in 1.5 s\n"
    other = "fedstein: ask, round 2: answered in 0.5 s\nfedstein: ask, round 3: answered in 9 s\n"
    found = phases({"round": 2, "seconds": 4.0}, [ANSWERED.findall(log), ANSWERED.findall(other)])
    assert found == Phases(4.0, 0.5, 1.5)


@pytest.mark.slow
def test_bytes_of_every_kind_of_message(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {**on_flower.NETWORK, "model": {"kind": "bnn_classifier", "hidden": [4]}, "algorithm": {"particles": 2}}
    monkeypatch.setattr(on_flower, "NETWORK", {**small, "partition": {"clients": 3, "rows_per_client": 30}})
    plain, half = bytes_by_kind("plain"), bytes_by_kind("bfloat16")
    size = 4 * 2 * (784 * 4 + 4 + 4 * 9 + 9)  # bytes of an array of the size of the particles
    assert plain == {"broadcast": size, "report": size, "assignment": 2 * size, "update": 3 * size}
    assert half == {kind: plain[kind] // 2 for kind in KINDS}


def test_cpu_seconds_are_those_of_the_groups() -> None:
    own = os.getpgid(0)
    before = cpu_seconds({own})
    sum(range(3_000_000))
    assert cpu_seconds({own}) >= before > 0
    assert cpu_seconds(set()) == 0


def test_the_page_says_that_a_machine_was_busy() -> None:
    cell = {"least": 0.5, "median": 1.0}
    phases = {"total": {"least": 2.0, "median": 3.0}, "reports": cell, "training": cell}
    task = {"name": "some task", "rounds": 4, "in_process": cell, "on_flower": phases, "idle": 0.02}
    document = {"nodes": 3, "threads": 1, "tasks": [task], "bytes": {"plain": dict.fromkeys(KINDS, 10**6)}}
    busy, quiet = (markdown({**document, "load": [load, 1.0]}) for load in (9.0, 0.5))
    assert "the times are too long" in busy
    assert "the times are too long" not in quiet
    assert (
        "| some task | 0.500, 1.000 | 2.000, 3.000 | 0.500, 1.000 | 0.500, 1.000 | 1.000, 1.000 | 2.00% (above" in quiet
    )
    assert "| plain | 1.00 | 1.00 | 1.00 | 1.00 | 4.0 |" in quiet
