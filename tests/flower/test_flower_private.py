"""A private run over nodes: with the secret of the process the same bits, with their own secrets others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flower_runs import BLR, CLIENTS, QUICK, Fleet, in_process, lines, settings
from flwr.app import Message

from fedstein.flower.records import from_record
from fedstein.privacy import guard
from fedstein.privacy.noise import seed_secret
from fedstein.runs.audit import audit

PRIVATE = {"kind": "record", "epsilon": 3.0, "visits": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sections",
    [
        {"rounds": 2},
        {"rounds": 3, "selection": {"kind": "ksd", "per_round": 2}},
        {"rounds": 2, "model": {"kind": "bnn_classifier", "hidden": [3]}},
        {"rounds": 2, "algorithm": {"kind": "pvi", "particles": 4}, "sites": {"kind": "none"}},
    ],
    ids=["round_robin", "ksd", "network", "pvi"],
)
def test_both_engines_compute_the_same_from_the_same_secret(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any]
) -> None:
    raw = settings(BLR, privacy=PRIVATE, **sections)
    raw["engine"]["start_timeout"] = 10.0
    here = in_process(raw, tmp_path / "local")
    other = fleet.run(raw, tmp_path / "secret")
    assert (here / "posterior.safetensors").read_bytes() != (other / "posterior.safetensors").read_bytes()
    assert all(info["rows"] == -1 for info in json.loads((other / "clients.json").read_text()))
    least = 2.98 if "algorithm" in sections else 2.999  # PVI releases no moments, for which 1% of the budget is kept
    assert audit(tmp_path / "nodes" / "node-1")[0]["spent"]["epsilon"] > least

    real = guard.label_of
    monkeypatch.setattr(guard, "label_of", lambda run, *rest: real("in process", *rest))
    for client in range(CLIENTS):
        folder = tmp_path / "nodes" / f"node-{client}" / "privacy"
        (folder / "ledger.jsonl").unlink()
        (folder / "secret").write_bytes(seed_secret(3))
    there = fleet.run(raw, tmp_path / "flower")
    assert (here / "posterior.safetensors").read_bytes() == (there / "posterior.safetensors").read_bytes()
    costs = [{key: value for key, value in line.items() if key != "row_gradients"} for line in lines(here)]
    assert costs == [{key: value for key, value in line.items() if key != "row_gradients"} for line in lines(there)]


@pytest.mark.slow
def test_a_secure_sum_that_fails_has_spent_its_visit_and_the_run_goes_on(fleet: Fleet, tmp_path: Path) -> None:
    raw = settings(BLR, rounds=3, privacy={**PRIVATE, "visits": 3, "sums": "secure"})
    raw["engine"] |= {**QUICK, "kind": "flower", "on_missing": "proceed", "start_timeout": 10.0}
    kinds = []

    def reached(request: Message) -> bool:
        head = from_record(request.content).head
        kinds.append((head["kind"], head.get("of")))
        return not (head.get("phase") == "masked" and head["client"] == 2 and head["round"] == 2)

    fleet.grid.before = reached
    folder = fleet.run(raw, tmp_path / "run")
    assert set(kinds) == {("hello", None), ("secure", "train")}  # nobody's own release is asked for
    assert [line["selected"] for line in lines(folder)] == [[0, 1, 2], [], [0, 1, 2]]
    spent = [audit(tmp_path / "nodes" / f"node-{client}")[0]["releases"]["gradient"] for client in range(CLIENTS)]
    assert spent == [3, 3, 2]
