"""A private run over nodes: with the secret of the process the same bits, with their own secrets others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flower_runs import BLR, CLIENTS, Fleet, in_process, lines, settings

from fedstein.privacy import guard
from fedstein.privacy.noise import seed_secret
from fedstein.runs.audit import audit

PRIVATE = {"kind": "record", "epsilon": 3.0, "visits": 2}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [{}, {"kind": "ksd", "per_round": 2}], ids=["round_robin", "ksd"])
def test_both_engines_compute_the_same_from_the_same_secret(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: dict[str, Any]
) -> None:
    raw = settings(BLR, rounds=3 if scheme else 2, privacy=PRIVATE, **({"selection": scheme} if scheme else {}))
    raw["engine"]["start_timeout"] = 10.0
    here = in_process(raw, tmp_path / "local")
    other = fleet.run(raw, tmp_path / "secret")
    assert (here / "posterior.safetensors").read_bytes() != (other / "posterior.safetensors").read_bytes()
    assert all(info["rows"] == -1 for info in json.loads((other / "clients.json").read_text()))
    assert audit(tmp_path / "nodes" / "node-1")[0]["spent"]["epsilon"] > 2.999

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
