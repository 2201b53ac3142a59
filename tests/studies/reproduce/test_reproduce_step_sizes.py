"""The step sizes of the comparison: one grid, held-out rows, a figure."""

from __future__ import annotations

import pytest

from fedstein.studies.reproduce import step_sizes as steps
from fedstein.studies.reproduce.plan import BEYOND
from fedstein.studies.reproduce.variants import TUNED
from fedstein.studies.tuning import Trial


def test_every_method_has_the_same_multiples_of_its_default():
    grids = {m: [step / steps.BASE[m]["bnn"] for step in steps.grid_of("bnn27", m)] for m in steps.METHODS}
    assert all(grid == pytest.approx(list(steps.GRID)) for grid in grids.values())
    assert set(steps.grid_of("blr30", "pooled")) == set(steps.grid_of("blr30", "curvature"))
    assert all(set(TUNED[setting]) == set(steps.METHODS) for setting in BEYOND["sites"].panels)


def trial(step: float, accuracy: float | None, seed: int = 0) -> Trial:
    return Trial(step, seed, accuracy, None, None)


def test_a_step_size_that_diverged_with_one_seed_is_no_choice():
    trials = [("blr30", "pooled", trial(0.1, 0.9)), ("blr30", "pooled", trial(0.1, None, 1))]
    trials += [("blr30", "pooled", trial(0.05, 0.7)), ("blr30", "pooled", trial(0.05, 0.6, 1))]
    (curve,) = steps.curves_of(trials)
    assert curve.points == ((0.05, pytest.approx(0.65)), (0.1, None))
    assert curve.best == 0.05


def test_the_page_the_numbers_and_the_figure(tmp_path):
    curves = [
        steps.Curve("bnn27", "pooled", ((1e-3, 0.93), (8e-3, 0.96))),
        steps.Curve("bnn27", "fedavg", ((0.5, 0.94), (2.0, None))),
    ]
    lines = steps.write_steps(curves, tmp_path)
    assert "**0.008: 0.9600**" in lines[2]
    assert "2: diverged" in lines[3]
    assert (tmp_path / "steps.csv").read_text().splitlines()[-1] == "bnn27,fedavg,2,"
    assert (tmp_path / "steps.png").stat().st_size > 3000


@pytest.mark.slow
def test_tuning_a_setting_in_miniature(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "GRID", (1.0,))
    monkeypatch.setattr(steps, "MORE", {})
    trials = list(steps.tune_all(["blr30"], 1, 2, tmp_path))
    assert [method for _, method, _ in trials] == list(steps.METHODS)
    assert all(0.3 < trial.accuracy < 0.9 for _, _, trial in trials)
    monkeypatch.setattr("fedstein.studies.tuning.try_step", lambda *a: pytest.fail("what was run is not run again"))
    assert list(steps.tune_all(["blr30"], 1, 2, tmp_path)) == trials
