"""Weights of draws: Pareto smoothing against ArviZ, averages against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedstein.inference import draw_diagnostics
from fedstein.inference.importance import RELIABLE, Weighted, pareto_smoothed, weigh
from fedstein.inference.reweighting import MOST, further_draws, needs_better_sites
from fedstein.models import blr, bnn_classifier


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_smoothing_is_that_of_arviz(scale: float) -> None:
    arviz = pytest.importorskip("arviz")
    if not hasattr(arviz, "psislw"):
        pytest.skip("this version of ArviZ has no psislw")
    log_weights = scale * np.random.default_rng(1).standard_t(6, 3000)
    ours, k = pareto_smoothed(log_weights - log_weights.max())
    theirs, their_k = arviz.psislw(log_weights.copy())
    assert k == pytest.approx(float(their_k), abs=1e-6)
    ours = ours - np.log(np.sum(np.exp(ours)))
    np.testing.assert_allclose(ours, np.asarray(theirs), atol=1e-6)


def test_the_shape_of_a_pareto_tail_is_found() -> None:
    rng = np.random.default_rng(2)
    for shape in (0.3, 0.6, 0.9):
        log_weights = -shape * np.log(rng.random(100_000))
        assert pareto_smoothed(log_weights - log_weights.max())[1] == pytest.approx(shape, abs=0.08)


def test_weighted_averages_are_those_of_the_target() -> None:
    rng = np.random.default_rng(3)
    draws = 1.3 * rng.standard_normal((20_000, 2))
    target = -0.5 * np.sum(((draws - [0.4, 0]) / [0.8, 1.1]) ** 2, axis=1)
    found = weigh(draws, target + 0.5 * np.sum((draws / 1.3) ** 2, axis=1) + 700.0)  # constants do not matter
    assert found.k < 0.5
    assert 5000 < found.ess < 20_000
    np.testing.assert_allclose(found.mean, [0.4, 0], atol=0.03)
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), [0.8, 1.1], rtol=0.03)
    again = found.resampled(20_000, seed=1)
    np.testing.assert_allclose(again.mean(axis=0), found.mean, atol=0.03)
    assert np.abs(np.corrcoef(again[:-1, 0], again[1:, 0])[0, 1]) < 0.05
    np.testing.assert_array_equal(found.resampled(5, seed=1), found.resampled(5, seed=1))


def test_weights_that_say_nothing_are_not_usable() -> None:
    draws = np.random.default_rng(4).standard_normal((500, 1))
    assert not weigh(draws, np.full(500, -np.inf)).usable
    far = weigh(draws, 40 * draws[:, 0])
    assert far.k > 0.7
    assert not far.usable
    equal = weigh(draws, np.zeros(500))
    assert equal.ess == pytest.approx(500)
    assert equal.usable


def test_a_tail_without_mass_says_nothing() -> None:
    """The same tail, once as a ten-thousandth of the weights and once as all of them: k is the same for both."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4000, 1))
    tail = rng.pareto(1.0, 4000)
    found = weigh(draws, np.log1p(1e-4 * tail))
    assert found.k > RELIABLE
    assert found.ess > 0.99 * 4000
    assert found.reliable
    assert not draw_diagnostics.weights_diagnostics(found).problems
    heavy = weigh(draws, np.log1p(tail))
    assert heavy.k == pytest.approx(found.k)
    assert not heavy.reliable
    assert "Pareto k" in draw_diagnostics.weights_diagnostics(heavy).problems[0]
    nothing = weigh(draws, np.full(4000, -np.inf))
    assert nothing.ess == pytest.approx(4000), "no weight is finite, so all are alike"
    assert not nothing.reliable


def test_the_error_of_an_sd_is_its_spread_over_samples() -> None:
    """Draws of N(0, 1) weighted to a Student distribution, many times over: the sd of the sds is what is estimated."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(300):
        draws = 1.5 * rng.normal(size=(1000, 1))
        log_ratio = stats.t.logpdf(draws, 9) - stats.norm.logpdf(draws, scale=1.5)
        found.append(weigh(draws, log_ratio[:, 0]))
    sds = [np.sqrt(weighted.covariance[0, 0]) for weighted in found]
    expected = np.std(sds) / np.mean(sds)
    assert np.median([weighted.sd_error for weighted in found]) == pytest.approx(expected, rel=0.15)


def test_more_draws_are_made_where_one_draw_has_much_of_the_variance() -> None:
    draws = np.random.default_rng(6).normal(size=(4000, 2))
    equal = np.full(4000, -np.log(4000))
    far = draws.copy()
    far[7, 1] = 40.0
    with_scale, without = blr(1), bnn_classifier(1, 2)
    assert further_draws(with_scale, Weighted(draws, equal, 0.0)) == 0
    assert further_draws(with_scale, Weighted(far, equal, 0.0)) == 4000  # no more than twice as many in one step
    assert further_draws(without, Weighted(far, equal, 0.0)) == 0  # each draw would have to travel
    assert needs_better_sites(Weighted(far, equal, 0.0))  # it would take too many draws
    assert not needs_better_sites(Weighted(draws, equal, 0.0))
    near = draws.copy()
    near[7, 1] = 18.0  # a draw with a share of .08: its error of .04 takes twice as many draws, which are cheap
    assert further_draws(with_scale, Weighted(near, equal, 0.0)) == 4000
    assert not needs_better_sites(Weighted(near, equal, 0.0))
    assert not needs_better_sites(Weighted(far[:400], np.full(400, -np.log(400)), 0.0))  # few draws show no error


def test_the_number_of_draws_follows_the_error_and_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.zeros((8000, 1))
    for error, expected in ((0.029, 0), (0.031, 4000), (0.038, 8000), (0.3, 8000), (np.nan, 0)):
        monkeypatch.setattr(Weighted, "sd_error", property(lambda _, error=error: error))
        assert further_draws(blr(1), Weighted(draws, np.zeros(8000), 0.0)) == expected, error
    monkeypatch.setattr(Weighted, "sd_error", property(lambda _: 0.3))
    many = np.zeros((MOST, 1))
    assert further_draws(blr(1), Weighted(many, np.zeros(MOST), 0.0)) == 0
