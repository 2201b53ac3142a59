"""Whole runs with room for hardly any site: the same files, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedstein.federation.site_table import SiteTable
from fedstein.runs import runner
from fedstein.runs.config import merge, resolve
from fedstein.runs.federate import PreparedRun, facts_of, prepare_run

SETTINGS = [
    "partition.clients=6",
    "partition.rows_per_client=40",
    "selection.kind=random",
    "rounds=12",
    "algorithm.particles=5",
    "engine.threads=1",
    "checkpoint.every=3",
]


class Watch:
    """Evaluates as the run would, and looks at where the sites are."""

    def __init__(self, evaluate: Any):
        self.evaluate = evaluate
        self.out: list[int] = []
        self.held: list[int] = []

    def __call__(self, round_index: int, particles: Any, sites: SiteTable) -> Any:
        self.out.append(sites.cache.count_on_disk())
        self.held.append(sites.cache.bytes_in_memory)
        return self.evaluate(round_index, particles, sites)


def tighten(prepared: PreparedRun, room: int) -> tuple[PreparedRun, Watch]:
    """The same run with that many bytes for sites, and what watches it."""
    watch = Watch(prepared.evaluation)
    return prepared._replace(context=prepared.context._replace(budget=room, evaluate=watch)), watch


def lines(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


CURVED = ("sites.kind=curvature", "sites.expand=mean")


@pytest.mark.parametrize(
    ("sites", "room"),  # for one site and a bit
    [(CURVED, 15_000), (("sites.kind=particles",), 2_000)],
    ids=["curvature-15000", "particles-2000"],
)
def test_a_run_with_hardly_any_memory_has_the_same_bits(
    sites: tuple[str, ...], room: int, covertype: Any, tmp_path: Path
):
    config, _ = resolve(merge({}, [*SETTINGS, *sites]), facts_of(covertype))
    runner.start(prepare_run(config, covertype), tmp_path / "roomy", lambda record: None)
    tight, watch = tighten(prepare_run(config, covertype), room)
    runner.start(tight, tmp_path / "tight", lambda record: None)
    assert watch.out[-1] > 0
    assert max(watch.held) <= room
    assert lines(tmp_path / "roomy") == lines(tmp_path / "tight")
    for name in ("posterior.safetensors", "config.toml"):
        assert (tmp_path / "roomy" / name).read_bytes() == (tmp_path / "tight" / name).read_bytes()


def test_a_resumed_run_reads_its_sites_into_the_budget(covertype: Any, tmp_path: Path):
    config, _ = resolve(merge({}, [*SETTINGS, "sites.expand=mean"]), facts_of(covertype))
    runner.start(prepare_run(config, covertype), tmp_path / "whole", lambda record: None)

    def stop(record: Any) -> None:
        if record["round"] == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.start(prepare_run(config, covertype), tmp_path / "cut", stop)
    seen: list[int] = []
    watches: list[Watch] = []

    def tight(folder: Any, config: Any) -> Any:
        prepared, watch = tighten(runner.in_process(folder, config), 15_000)
        watches.append(watch)
        seen.append(0)
        return prepared

    folder, config = runner.open_run(tmp_path / "cut")
    runner.resume(folder, config, lambda done, changes: seen.append(done), lambda record: None, tight)
    assert seen == [0, 6]
    (watch,) = watches
    assert watch.out[0] > 0
    assert max(watch.held) <= 15_000
    assert lines(tmp_path / "whole") == lines(tmp_path / "cut")
