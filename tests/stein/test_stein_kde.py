"""Kernel density estimates against SciPy, and their scores against autodiff of the written-out formulas."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.special import logsumexp
from scipy.stats import gaussian_kde, multivariate_normal

from fedstein import stein

LAMBDA = 0.55
kde_score = jax.jit(stein.kde_score, static_argnames=("bandwidth", "density", "dim"))
kde_log_density = jax.jit(stein.kde_log_density)


def sample(n: int, m: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(n, d)), 0.5 + draw.normal(size=(m, d))


def log_mixture(x: Array, centres: Array) -> Array:
    """log sum_j exp(-||x - y_j||^2 / 2 lambda^2) of one point: what the log form is the gradient of."""
    return jax.nn.logsumexp(-jnp.sum((centres - x) ** 2, axis=1) / (2 * LAMBDA**2))


def reference_log_density(x: Array, centres: Array, bandwidth: float, dim: int) -> Array:
    """log(kde + 1e-10) of one point, exactly as FACTS.md has it from the authors' code."""
    squared = jnp.sum((centres - x) ** 2, axis=1)
    total = jnp.log(jnp.sum(jnp.exp(-squared / (2 * bandwidth**2)) + 1e-9) + 1e-50)
    kde = jnp.exp(total - (dim / 2) * jnp.log(len(centres) * 2 * math.pi * bandwidth**2 + 1e-50))
    return jnp.log(kde + 1e-10)


@pytest.mark.parametrize("d", [1, 3, 10])
def test_the_log_density_is_a_mixture_of_normals(d: int, precision: Any) -> None:
    points, centres = sample(7, 5, d)
    each = [multivariate_normal(y, LAMBDA**2 * np.eye(d)).logpdf(points) for y in centres]
    expected = logsumexp(np.stack(each), axis=0) - math.log(5)
    got = kde_log_density(points.astype(precision.dtype), centres.astype(precision.dtype), LAMBDA)
    precision.close(got, expected)


def test_the_log_density_in_one_dimension_is_scipys_kde(double: Any) -> None:
    points, centres = sample(20, 9, 1)
    smoother = gaussian_kde(centres[:, 0], bw_method=LAMBDA / centres[:, 0].std(ddof=1))
    double.close(kde_log_density(points, centres, LAMBDA), smoother.logpdf(points[:, 0]))


@pytest.mark.parametrize(("n", "m", "d"), [(7, 5, 3), (3, 11, 20)])
def test_the_log_score_is_the_gradient_of_the_log_density(n: int, m: int, d: int, precision: Any) -> None:
    points, centres = (t.astype(precision.dtype) for t in sample(n, m, d))
    expected = jax.jit(jax.grad(lambda p: jnp.sum(stein.kde_log_density(p, centres, LAMBDA))))(points)
    precision.close(kde_score(points, centres, LAMBDA), expected, factor=10)
    with jax.enable_x64(True):  # and of a formula that shares no code with the package
        exact = jax.jit(jax.vmap(jax.grad(log_mixture), (0, None)))(*(t.astype(float) for t in (points, centres)))
    precision.close(kde_score(points, centres, LAMBDA), exact, factor=10)


def test_the_score_of_a_mixture_at_its_own_centres(double: Any) -> None:
    """Where the terms are used: q's KDE at q's particles. Finite differences of SciPy's densities."""
    _, centres = sample(1, 6, 2)

    def log_density(point: np.ndarray) -> float:
        each = [multivariate_normal(y, LAMBDA**2 * np.eye(2)).logpdf(point) for y in centres]
        return float(logsumexp(each))

    e = 1e-5
    numeric = [[(log_density(c + s) - log_density(c - s)) / (2 * e) for s in e * np.eye(2)] for c in centres]
    np.testing.assert_allclose(kde_score(centres, centres, LAMBDA), numeric, atol=1e-7)


# With d = 2 the floor plays no part, with d = 9 it halves the score and more, with d = 20 little is left.
@pytest.mark.parametrize(("d", "dim"), [(2, 2), (9, 9), (10, 9), (20, 20)])
def test_the_reference_score_is_the_gradient_of_the_authors_formula(d: int, dim: int, double: Any) -> None:
    points, centres = sample(6, 8, d)
    points = np.concatenate([points, centres[:2] + 0.1, centres[:1] + 50])
    expected = jax.jit(jax.vmap(jax.grad(lambda x: reference_log_density(x, jnp.asarray(centres), LAMBDA, dim))))(
        points
    )
    assert np.abs(np.asarray(expected)).max() > 1e-9
    got = kde_score(points, centres, LAMBDA, "reference", dim=dim)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-300)


def test_the_reference_score_in_float32_is_that_of_float64() -> None:
    points, centres = sample(6, 8, 5)
    got = kde_score(points.astype(np.float32), centres.astype(np.float32), LAMBDA, "reference")
    with jax.enable_x64(True):
        exact = np.asarray(kde_score(points, centres, LAMBDA, "reference"))
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())


def test_the_reference_score_is_dead_at_55_dimensions_and_the_log_score_is_not(precision: Any) -> None:
    points, centres = (t.astype(precision.dtype) for t in sample(6, 6, 55))
    assert np.abs(np.asarray(kde_score(points, centres, LAMBDA, "reference"))).max() < 1e-15
    assert np.abs(np.asarray(kde_score(points, centres, LAMBDA, "log"))).max() > 1


@pytest.mark.parametrize("bandwidth", [0.01, 0.05])
def test_the_reference_score_stays_finite_with_a_narrow_bandwidth(bandwidth: float) -> None:
    """A negative log-normaliser makes kde overflow float32, where kde / (kde + 1e-10) should be one."""
    points, centres = (t.astype(np.float32) for t in sample(6, 6, 55))
    points = centres + np.float32(bandwidth / 50)
    got = np.asarray(kde_score(points, centres, bandwidth, "reference", dim=1000))
    assert np.all(np.isfinite(got))
    np.testing.assert_allclose(got, (centres - points) / bandwidth**2, rtol=1e-2)


def test_far_away_centres_leave_the_log_score_finite_and_pointing_at_them(precision: Any) -> None:
    points, centres = (t.astype(precision.dtype) for t in sample(6, 8, 5))
    far = centres + precision.dtype.type(1e4)
    got = np.asarray(kde_score(points, far, LAMBDA))
    assert np.all(np.isfinite(got))
    np.testing.assert_allclose(got, 1e4 / LAMBDA**2, rtol=1e-3)


def test_the_log_score_is_right_at_80_000_dimensions() -> None:
    draw = np.random.default_rng(0)
    points = draw.normal(size=(4, 80_000)).astype(np.float32)
    centres = (points[::-1] + 0.001 * draw.normal(size=points.shape)).astype(np.float32)
    got = np.asarray(kde_score(points, centres, LAMBDA))
    assert np.all(np.isfinite(got))
    # Everything else is 160,000 / 0.6 away in the exponent: the nearest centre has all the weight.
    np.testing.assert_allclose(got, (centres[::-1] - points) / LAMBDA**2, atol=2e-5)
    assert np.all(np.isfinite(kde_log_density(points, centres, LAMBDA)))
    assert np.all(np.asarray(kde_score(points, centres, LAMBDA, "reference")) == 0)


def test_blocks_give_the_same_as_one_array(precision: Any) -> None:
    points, centres = (t.astype(precision.dtype) for t in sample(6, 8, 5))
    cut = [(t[:, :3], t[:, 3:]) for t in (points, centres)]
    for density in ("log", "reference"):
        whole = np.asarray(kde_score(points, centres, LAMBDA, density))
        precision.close(np.concatenate(kde_score(*cut, LAMBDA, density), axis=1), whole, factor=3)
    precision.close(kde_log_density(*cut), kde_log_density(points, centres))


def test_an_unknown_density_is_named_in_the_refusal() -> None:
    one = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match=r"log, reference.*'exact'"):
        stein.kde_score(one, one, density="exact")
