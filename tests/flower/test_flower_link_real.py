"""A real link that is cut off after every request of a round, by proxies between it and the server and a node.

One run on resident nodes. In its round n + 1 the n-th request of the server and the n-th request of a node are cut, and
every twentieth request after them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from echo import until
from flower_runs import BLR, events, in_process, lines, settings
from proxies import Cutter

from fedstein.flower.launch.appdir import flatten, write_app
from fedstein.flower.launch.environment import tail
from fedstein.flower.launch.processes import EXEC, Fleet
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset

pytestmark = pytest.mark.slow
CLIENTS = 2
STEP = 20  # requests between two cuts of a round
ROUNDS = STEP + 2
LONG = 800.0  # seconds that nothing here takes, on however busy a machine


def test_a_link_that_is_cut_off_after_every_request_of_a_round(tmp_path: Path) -> None:
    """The run is the one without faults, to the bit, and no client's update counts twice."""
    raw = settings(
        BLR,
        partition={"clients": CLIENTS},
        selection={"kind": "ksd"},
        sites={"kind": "particles", "density": "log"},
        rounds=ROUNDS,
    )
    # A request that the link handed over into a cut connection is known to be lost only by its timeout.
    waits = {"kind": "flower", "report_timeout": 20.0, "train_timeout": 10.0, "start_timeout": 120.0}
    config, _ = resolve({**raw, "engine": {"threads": 1, **waits}}, facts_of(load_dataset(raw)))
    out = tmp_path / "run"
    app = write_app(tmp_path / "app", {**flatten(config.to_dict()), "out": str(out)}).parent
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    cutters: list[Cutter] = []

    def rounds_done() -> int:
        path = out / "rounds.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def plan(number: int) -> dict[int, bool]:
        """Nothing in the first round, which sets up. By turns the link has done what it was asked before the cut."""
        return {n: (n // STEP + n) % 2 == 1 for n in range(number - 1, 200, STEP)} if number > 1 else {}

    def through(port: int) -> str:
        cutters.append(Cutter(port, rounds_done, plan))
        return cutters[-1].address

    with Fleet(
        tmp_path / "fleet", variables={"JAX_COMPILATION_CACHE_DIR": cache} if cache else None, patience=120
    ) as fleet:
        fleet.start_link(through)
        for client in range(CLIENTS):
            node = {"partition-id": client, "state-dir": str(tmp_path / "state" / str(client))}
            address = None if client else through(fleet.port)
            fleet.start_node(f"client-{client}", node, wait=False, through=address)
        run = fleet.submit(app)
        try:
            until(lambda: fleet.apps(EXEC), LONG)
            until(lambda: (out / "summary.json").exists() or not fleet.apps(EXEC), LONG)
            said = "" if (out / "summary.json").exists() else tail(fleet.logs(run), 60)
        finally:
            for cutter in cutters:
                cutter.close()
    assert (out / "summary.json").exists(), said
    for cutter in cutters:
        made = {number for _, number, _, _ in cutter.cuts}
        usual = min(len(kinds) for number, kinds in cutter.seen.items() if 1 < number < ROUNDS)
        assert made >= set(range(1, usual + 1)), "every request of a round was cut once"
    whole = in_process(raw, tmp_path / "whole")
    assert lines(out) == lines(whole)
    assert (out / "posterior.safetensors").read_bytes() == (whole / "posterior.safetensors").read_bytes()
    away = [entry["reason"] for entry in events(out) if entry["event"] == "link away"]
    assert any("ObjectPushError" in reason for reason in away), "the fault that once ended a run"
