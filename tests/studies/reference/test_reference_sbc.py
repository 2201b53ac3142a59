"""Simulation-based calibration at miniature size: ranks of exact draws, a study that goes on, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedstein.cli import main
from fedstein.errors import InputError
from fedstein.inference.importance import Weighted
from fedstein.studies.reference import sbc, simulations


def calibration(width: float, simulations: int = 400) -> sbc.Calibration:
    """theta ~ N(0, 1), y ~ N(theta, 1): the posterior is N(y / 2, 1 / 2); draws are ``width`` times as wide."""
    draw = np.random.default_rng(0)
    theta = draw.normal(size=(simulations, 2))
    centre = (theta + draw.normal(size=theta.shape)) / 2
    pairs = [
        sbc.rank_in(at, middle + width * np.sqrt(0.5) * draw.normal(size=(500, 2)))
        for at, middle in zip(theta, centre, strict=True)
    ]
    ranks, covered = (np.stack(part) for part in zip(*pairs, strict=True))
    return sbc.Calibration(("a", "b"), ranks, covered, 0)


def test_exact_draws_are_calibrated_and_narrow_ones_are_not() -> None:
    good, narrow = calibration(1.0), calibration(0.6)
    assert good.counts().sum() == 800
    assert np.all(np.abs(good.coverage() - 0.9) < 0.05)
    assert good.p_values().min() > 0.01
    assert "ranks look uniform" in sbc.overall("exact", good)
    low, high = good.band()
    assert stats.binom.cdf(high, 400, 0.1) - stats.binom.cdf(low - 1, 400, 0.1) >= 0.99
    assert np.all(narrow.coverage() < 0.8)
    assert narrow.counts()[0, 0] > high  # ranks pile up at the ends
    assert "RANKS ARE NOT UNIFORM" in sbc.overall("narrow", narrow)
    assert "| narrow | a | 400 |" in sbc.table({"narrow": narrow})


def test_stratified_draws_have_uniform_ranks_only_if_every_simulation_thins_them_anew() -> None:
    """Weighted draws of a scale are one from each of n strata, in order, until they are resampled."""
    strata = stats.norm.ppf((np.arange(1000) + 0.5) / 1000)[:, None]
    exact = Weighted(strata, np.full(1000, -np.log(1000)), 0.0)
    theta = np.random.default_rng(3).normal(size=(2000, 1))

    def p_value(seeds: list[int]) -> float:
        pairs = [sbc.rank_in(at, exact.resampled(1000, seed)) for at, seed in zip(theta, seeds, strict=True)]
        ranks, covered = (np.stack(part) for part in zip(*pairs, strict=True))
        return float(sbc.Calibration(("log xi",), ranks, covered, 0).p_values()[0])

    assert p_value(list(range(2000))) > 0.01
    assert p_value([0] * 2000) < 1e-6


@pytest.mark.parametrize("kind", simulations.STUDIES)
def test_simulated_rows_are_those_of_the_model(kind: str) -> None:
    study = simulations.STUDIES[kind]
    model = simulations.built(study)
    theta, clients = simulations.simulate(study, model, 0, 3)
    assert theta.shape == (model.dim,)
    assert [x.shape for x, _ in clients] == [(study.rows, 2)] * study.clients
    again, same = simulations.simulate(study, model, 0, 3)
    np.testing.assert_array_equal(theta, again)
    np.testing.assert_array_equal(clients[2][1], same[2][1])
    assert len(simulations.names_of(model)) == model.dim
    y = np.concatenate([y for _, y in clients])
    assert np.isfinite(y).all()
    if model.task == "classification":
        assert y.dtype == np.int32
        assert set(y) == set(range(model.classes))
    else:
        assert y.dtype == np.float32


@pytest.mark.slow
def test_a_miniature_study_goes_on_where_it_stopped(tmp_path: Path, capsys) -> None:
    out = tmp_path / "calibration"
    arguments = ["reference", "--sbc", "--model", "linear", "--out", str(out)]
    with pytest.raises(SystemExit) as done:
        main([*arguments, "--simulations", "10", "--quiet"])
    assert done.value.code in (0, None)
    first = json.loads((out / "linear.json").read_text())
    assert np.shape(first["ranks"]) == (10, 5)
    with pytest.raises(SystemExit):
        main([*arguments, "--simulations", "12"])
    assert json.loads((out / "linear.json").read_text())["ranks"][:10] == first["ranks"]
    said = capsys.readouterr().out
    assert "linear: 90% intervals contain the truth in" in said
    assert (out / "ranks.png").stat().st_size > 10_000
    assert "| linear | log gamma | 12 |" in (out / "calibration.md").read_text()
    covered = np.asarray(first["covered"]).mean()
    assert covered > 0.7  # 50 intervals: 45 expected; fewer than 35 have a chance below 1e-4 if intervals are right
    with pytest.raises(InputError, match="holds another study"):
        sbc.run_study(simulations.STUDIES["linear"], 10, 1, out / "linear.json", lambda share, doing: None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sbc", "runs/some"], "leave the folders out"),
        (["--sbc", "--model", "bnn_classifier"], "a study of calibration for blr, linear, poisson, negative_binomial"),
        (["--sbc", "--simulations", "3"], "expected --simulations from 10"),
        (["--simulations", "50", "runs/some"], "go with --sbc"),
        ([], "expected folders of finished runs, or --sbc"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], message: str, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reference", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
