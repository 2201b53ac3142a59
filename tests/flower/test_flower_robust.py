"""Bounded sites and clients that rest: the same lines on both engines and across a kill, bit for bit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from flower_runs import BLR, Fleet, in_process, lines, settings

from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run

ROBUST = {"kind": "bounded", "rest": 1}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["ksd", "hip"])
def test_robust_runs_are_alike_on_both_engines_and_when_resumed(fleet: Fleet, tmp_path: Path, scheme: str) -> None:
    raw = settings(BLR, selection={"kind": scheme}, robust=ROBUST, checkpoint={"every": 2})
    here, there = in_process(raw, tmp_path / "local"), fleet.run(raw, tmp_path / "flower")
    assert lines(here) == lines(there)
    chosen = [line["selected"][0] for line in lines(here)]
    assert all(a != b for a, b in pairwise(chosen))

    def stop(record: Any) -> None:
        if record["round"] == 3:
            raise KeyboardInterrupt

    dataset = load_dataset(raw)
    with pytest.raises(KeyboardInterrupt):
        runner.start(prepare_run(resolve(raw, facts_of(dataset))[0], dataset), tmp_path / "again", stop)
    folder, config = runner.open_run(tmp_path / "again")
    runner.resume(folder, config, lambda done, changes: None, lambda record: None)
    for other in (there, tmp_path / "again"):
        assert (here / "posterior.safetensors").read_bytes() == (other / "posterior.safetensors").read_bytes()
