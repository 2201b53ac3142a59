"""NUTS on prior and sites, against answers that are known: Gaussians, and logistic regression's hierarchical prior."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.errors import InputError
from fedstein.inference.sampling import PosteriorDraws, Sampler, sample_posterior
from fedstein.models import GaussianGiven, Model, blr, custom

SHORT = Sampler(warmup=200, draws=500)


def unused(*arguments: Any) -> Any:
    raise AssertionError("sampling on the server asks no likelihood")


@cache
def gaussian_model(dim: int) -> Model:
    """A standard normal prior that says nothing about its form."""
    return custom(
        dim,
        log_prior=lambda theta: -0.5 * theta @ theta,
        log_likelihood=unused,
        init=lambda key: jnp.zeros(dim),
        predict=unused,
    )


def sums(dim: int, seed: int = 0, rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of a correlated Gaussian factor."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, dim)) @ (np.eye(dim) + 0.5 * rng.standard_normal((dim, dim)))
    return x.T @ rng.standard_normal(rows), x.T @ x


def blr_sums(model: Model, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sites of logistic regression: nothing is known about log xi."""
    weights = model.dim - 1
    eta, precision = np.zeros(model.dim), np.zeros((model.dim, model.dim))
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, weights))
    precision[:weights, :weights] = 0.2 * x.T @ x
    eta[:weights] = 0.2 * x.T @ (x @ (0.3 * rng.standard_normal(weights)) + 2 * rng.standard_normal(rows))
    return eta, precision


def exact_blr(model: Model, eta: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of theta = [w, log xi] by quadrature over log xi, w being Gaussian given it."""
    weights = model.dim - 1
    values, axes = np.linalg.eigh(precision[:weights, :weights])
    pull = axes.T @ eta[:weights]
    grid = np.linspace(-10, 9, 8001)
    curvature = np.maximum(values, 0) + np.exp(grid)[:, None]
    log = grid * (1 + weights / 2) - 0.01 * np.exp(grid)
    log = log - 0.5 * np.sum(np.log(curvature), axis=1) + 0.5 * np.sum(pull**2 / curvature, axis=1)
    share = np.exp(log - log.max())
    share /= share.sum()
    means = (pull / curvature) @ axes.T
    mean = share @ means
    spread = share @ ((1 / curvature) @ (axes**2).T + (means - mean) ** 2)
    middle = share @ grid
    return np.append(mean, middle), np.sqrt(np.append(spread, share @ (grid - middle) ** 2))


def assert_agrees(found: PosteriorDraws, mean: np.ndarray, sd: np.ndarray, offset: float, ratio: float) -> None:
    """The draws and the moments that come with them."""
    flat = found.flat
    for got_mean, got_sd in ((flat.mean(axis=0), flat.std(axis=0)), (found.mean, found.sd)):
        np.testing.assert_allclose((got_mean - mean) / sd, 0, atol=offset)
        np.testing.assert_allclose(got_sd / sd, 1, atol=ratio)


def test_nuts_samples_a_gaussian() -> None:
    eta, precision = sums(4)
    found = sample_posterior(gaussian_model(4), eta, precision, sampler=SHORT)
    covariance = np.linalg.inv(precision + np.eye(4))
    assert found.trusted, found.problems
    assert found.draws.shape == (4, 500, 4)
    assert found.draws.dtype == np.float64
    assert_agrees(found, covariance @ eta, np.sqrt(np.diag(covariance)), 0.12, 0.08)


def test_a_gaussian_prior_that_says_so_is_sampled_exactly_and_without_nuts() -> None:
    eta, precision = sums(5)
    model = gaussian_model(5)._replace(linear_prior_score=-1.0)
    found = sample_posterior(model, eta, precision, sampler=SHORT)
    covariance = np.linalg.inv(precision + np.eye(5))
    assert found.trusted, found.problems
    np.testing.assert_allclose(found.mean, covariance @ eta, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9, atol=1e-12)
    assert found.diagnostics.steps == 0
    assert np.all(found.diagnostics.ess > 1400)


@pytest.mark.parametrize("rows", [0, 6, 3000], ids=["the prior's funnel", "fewer rows than weights", "many rows"])
def test_the_hierarchical_prior_is_sampled_in_every_regime(rows: int) -> None:
    model = BLR
    eta, precision = blr_sums(model, rows)
    found = sample_posterior(model, eta, precision, sampler=SHORT)
    assert found.trusted, found.problems
    mean, sd = exact_blr(model, eta, precision)
    # Without rows the weights' sd is that of a heavy-tailed mixture, which quadrature on a finite grid cuts off.
    look = slice(None) if rows else slice(model.dim - 1, None)
    flat = found.flat
    np.testing.assert_allclose(((flat.mean(axis=0) - mean) / sd)[look], 0, atol=0.15)
    np.testing.assert_allclose((flat.std(axis=0) / sd)[look], 1, atol=0.15)
    np.testing.assert_allclose(((found.mean - mean) / sd)[look], 0, atol=0.12)


def test_the_same_seed_gives_the_same_draws_and_another_others() -> None:
    eta, precision = blr_sums(BLR, 50)
    first, again, other = (sample_posterior(BLR, eta, precision, sampler=SHORT, seed=s).draws for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0


@pytest.mark.slow
def test_one_precision_for_each_weight_goes_the_general_way_to_the_same_moments() -> None:
    eta, precision = blr_sums(BLR, 30)
    form = GaussianGiven(0, lambda blocks: jnp.broadcast_to(jnp.exp(blocks[1]), blocks[0].shape))
    one = sample_posterior(BLR, eta, precision, sampler=SHORT)
    each = sample_posterior(BLR._replace(gaussian_given=form), eta, precision, sampler=SHORT)
    np.testing.assert_allclose(each.mean, one.mean, rtol=0, atol=0.05 * one.sd.max())
    np.testing.assert_allclose(each.sd, one.sd, rtol=0.1)


def test_a_start_that_is_not_finite_still_gives_draws() -> None:
    eta, precision = sums(4)
    bad = np.array([np.nan, 0, 0, np.inf])
    found = sample_posterior(gaussian_model(4), eta, precision, sampler=SHORT, start=bad)
    assert found.trusted, found.problems


def test_what_no_density_can_be_made_of_is_refused() -> None:
    eta, precision = sums(4)
    with pytest.raises(InputError, match="structure = 'full'"):
        sample_posterior(gaussian_model(4), eta, np.diag(precision))
    with pytest.raises(InputError, match="finite"):
        sample_posterior(gaussian_model(4), eta * np.nan, precision)
    with pytest.raises(InputError, match="chains"):
        sample_posterior(gaussian_model(4), eta, precision, sampler=Sampler(chains=1))


@pytest.mark.slow
def test_the_centred_way_agrees_where_the_data_are_many_and_is_not_trusted_where_they_are_few() -> None:
    centred = BLR._replace(gaussian_given=None)
    eta, precision = blr_sums(BLR, 3000)
    found = sample_posterior(centred, eta, precision)
    assert found.trusted, found.problems
    assert_agrees(found, *exact_blr(BLR, eta, precision), 0.1, 0.08)
    eta, precision = blr_sums(BLR, 2)
    assert not sample_posterior(centred, eta, precision).trusted


BLR = blr(7)
