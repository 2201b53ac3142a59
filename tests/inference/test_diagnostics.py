"""R-hat, ESS and E-BFMI against NumPyro, against series whose answer is known, and on chains that are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from fedstein.inference import diagnostics, draw_diagnostics


def autoregressive(rho: float, chains: int, length: int, dim: int, seed: int = 0) -> np.ndarray:
    """Stationary series x_t = rho x_t-1 + sqrt(1 - rho^2) noise, chains x length x dim."""
    rng = np.random.default_rng(seed)
    values = np.empty((chains, length, dim))
    values[:, 0] = rng.standard_normal((chains, dim))
    for t in range(1, length):
        values[:, t] = rho * values[:, t - 1] + np.sqrt(1 - rho**2) * rng.standard_normal((chains, dim))
    return values


@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.5, 0.9])
def test_the_ess_of_an_autoregressive_series_is_the_analytic_one(rho: float) -> None:
    draws = autoregressive(rho, 4, 4000, 5)
    expected = 4 * 4000 * (1 - rho) / (1 + rho)
    found = diagnostics.bulk_ess(draws)
    assert np.mean(found) == pytest.approx(expected, rel=0.12)
    np.testing.assert_allclose(found, expected, rtol=0.3)


@pytest.mark.parametrize(("rho", "length"), [(0.0, 300), (0.7, 300), (0.7, 301)])
def test_the_plain_parts_are_numpyros(rho: float, length: int) -> None:
    draws = autoregressive(rho, 3, length, 4, seed=1)
    scores = diagnostics.normal_scores(diagnostics.split_chains(draws))
    np.testing.assert_allclose(diagnostics.ess(scores), effective_sample_size(scores), rtol=0.02)
    np.testing.assert_allclose(diagnostics._rhat(diagnostics.split_chains(draws)), split_gelman_rubin(draws), rtol=1e-9)


def test_values_are_arvizs() -> None:
    """Rank-normalised R-hat and bulk ESS by ArviZ 0.23.4: of a slow walk, and of the cube of a moving average."""
    rng = np.random.default_rng(5)
    walk = rng.standard_t(2, (4, 101)).cumsum(axis=1) * 0.2 + rng.standard_normal((4, 101))
    noise = rng.standard_normal((4, 102))
    draws = np.stack([walk, (noise[:, 1:] + 0.8 * noise[:, :-1]) ** 3], axis=2)
    np.testing.assert_allclose(diagnostics.rhat(draws), [1.77652727124446, 1.0081495174045647], rtol=1e-9)
    np.testing.assert_allclose(diagnostics.bulk_ess(draws), [6.531838710938174, 214.80044415254687], rtol=1e-9)


def test_a_monotone_change_of_values_changes_nothing() -> None:
    draws = autoregressive(0.3, 4, 200, 2)
    np.testing.assert_allclose(diagnostics.bulk_ess(np.exp(3 * draws)), diagnostics.bulk_ess(draws), rtol=1e-12)


@pytest.mark.parametrize("wrong", ["shifted", "wider", "drifting"])
def test_chains_that_disagree_are_found_out(wrong: str) -> None:
    draws = autoregressive(0.0, 4, 500, 1)
    assert diagnostics.rhat(draws)[0] < draw_diagnostics.RHAT
    if wrong == "shifted":
        draws[0] += 0.7
    elif wrong == "wider":
        draws[0] *= 2
    else:
        draws += np.linspace(-1, 1, 500)[:, None]
    assert diagnostics.rhat(draws)[0] > draw_diagnostics.RHAT


def test_the_energy_of_independent_draws_has_a_fraction_of_two_and_of_a_slow_walk_hardly_any() -> None:
    rng = np.random.default_rng(0)
    independent = rng.standard_normal((2, 4000))
    np.testing.assert_allclose(diagnostics.ebfmi(independent), 2, atol=0.1)
    assert np.all(diagnostics.ebfmi(np.cumsum(independent, axis=1)) < 0.05)


def trace(shape: tuple[int, int], **changes: np.ndarray) -> draw_diagnostics.Trace:
    rng = np.random.default_rng(2)
    arrays = {
        "values": np.zeros((*shape, 1)),
        "diverging": np.zeros(shape, bool),
        "energy": rng.standard_normal(shape),
        "acceptance": np.ones(shape),
        "steps": np.ones(shape),
    }
    return draw_diagnostics.Trace(**{**arrays, **changes})


def test_sound_draws_are_trusted_and_each_breach_has_its_sentence() -> None:
    draws = autoregressive(0.0, 4, 500, 2)
    assert draw_diagnostics.diagnose(draws, trace((4, 500)), 1.0).trusted
    diverging = np.zeros((4, 500), bool)
    diverging[0, :3] = True
    slow = np.cumsum(np.random.default_rng(0).standard_normal((4, 500)), axis=1)
    broken = draws.copy()
    broken[0, 0, 0] = np.nan
    cases = {
        "disagree": (draws + np.arange(4)[:, None, None], trace((4, 500))),
        "too few": (draws[:, :50], trace((4, 50))),
        "diverged": (draws, trace((4, 500), diverging=diverging)),
        "energy": (draws, trace((4, 500), energy=slow)),
        "finite": (broken, trace((4, 500))),
        "R-hat": (np.zeros((4, 500, 2)), trace((4, 500))),  # chains that never moved
    }
    for word, (values, left) in cases.items():
        found = draw_diagnostics.diagnose(values, left, 1.0)
        assert not found.trusted
        assert any(word in problem for problem in found.problems), (word, found.problems)
