"""The methods and selection rules of other authors over real messages: the same lines as in process, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from flower_runs import BLR, BNN, Fleet, in_process, lines, settings

EVERYDAY = ("oort", "fedcor")  # they remember something between rounds
OTHERS = ("gradient_norm", "folb", "power_of_choice", "active", "divfl", "optimal")


@pytest.mark.parametrize("scheme", [*EVERYDAY, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_selection_rules_choose_alike_on_both_engines(fleet: Fleet, tmp_path: Path, scheme: str) -> None:
    own = {"warm_up": 1} if scheme == "fedcor" else {}
    raw = settings(BLR, selection={"kind": scheme, **own})
    here, there = in_process(raw, tmp_path / "local"), fleet.run(raw, tmp_path / "flower")
    assert lines(here) == lines(there)
    assert (here / "posterior.safetensors").read_bytes() == (there / "posterior.safetensors").read_bytes()


METHODS = ("fedavg_ensemble", "fedprox", "scaffold", "fedadam", "fedgvi", "fedep", "fedlap", "fedpa", "fedivon")
CHAINS = ("ivon_admm", "dsgld", "fsgld", "qlsd_pp")


@pytest.mark.parametrize(
    "method", ["pvi", "qlsd", *(pytest.param(name, marks=pytest.mark.slow) for name in (*METHODS, *CHAINS))]
)
def test_methods_compute_alike_on_both_engines(fleet: Fleet, tmp_path: Path, method: str) -> None:
    raw = settings(BNN, algorithm={"kind": method}, selection={"per_round": 2, "kind": "random"}, rounds=3)
    here, there = in_process(raw, tmp_path / "local"), fleet.run(raw, tmp_path / "flower")
    assert lines(here) == lines(there)
    assert (here / "posterior.safetensors").read_bytes() == (there / "posterior.safetensors").read_bytes()
