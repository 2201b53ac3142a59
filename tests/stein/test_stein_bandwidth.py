"""h = med^2 / log N against NumPy's median of SciPy's pairwise distances."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist, squareform

from fedstein import stein

bandwidth = jax.jit(stein.median_bandwidth)


def expected(x: np.ndarray) -> float:
    return float(np.median(pdist(x.astype(np.float64)))) ** 2 / math.log(len(x))


# 2 and 6 particles have an odd number of pairs (1 and 15), 5 and 101 an even one.
@pytest.mark.parametrize("n", [2, 5, 6, 101])
def test_the_median_bandwidth(n: int, precision: Any) -> None:
    x = np.random.default_rng(n).normal(size=(n, 3)).astype(precision.dtype)
    squared = squareform(pdist(x, "sqeuclidean")).astype(precision.dtype)
    h = bandwidth(squared)
    assert h.dtype == precision.dtype
    np.testing.assert_allclose(h, expected(x), rtol=1e-6 if precision.dtype == np.float32 else 1e-14)


def test_even_counts_average_the_two_middle_distances_and_not_their_squares() -> None:
    x = np.array([[0.0], [1.0], [3.0], [7.0]], np.float32)  # distances 1 2 3 4 6 7: the median is 3.5
    h = bandwidth(cdist(x, x, "sqeuclidean").astype(np.float32))
    np.testing.assert_allclose(h, 3.5**2 / math.log(4), rtol=1e-6)


@given(st.lists(st.integers(-3, 3), min_size=8, max_size=8), st.integers(0, 2), st.floats(1e-3, 1e3))
def test_ties_and_scales(coordinates: list[int], spare: int, scale: float) -> None:
    """Few distinct values give many equal distances, zeros among them; even (8) and odd (7, 6) counts."""
    x = scale * np.array(coordinates[: 8 - spare], np.float64)[:, None]
    squared = squareform(pdist(x, "sqeuclidean")).astype(np.float32)
    got = float(bandwidth(squared))
    assert got > 0
    np.testing.assert_allclose(got, expected(x), rtol=1e-5, atol=2e-19)  # the floor


@given(st.lists(st.floats(0, 2.0**100, width=32), min_size=10, max_size=10))
def test_any_non_negative_floats(values: list[float]) -> None:
    """Bisection on bits: zero, subnormal and huge entries included."""
    squared = squareform(np.array(values, np.float32), checks=False)
    got = float(bandwidth(squared))
    exact = np.median(np.sqrt(np.array(values, np.float32).astype(np.float64))) ** 2 / math.log(5)
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=2e-19)


def test_one_particle_has_no_median() -> None:
    one = np.zeros((1, 2), np.float32)
    for refused in (
        lambda: stein.median_bandwidth(jnp.zeros((1, 1))),
        lambda: stein.svgd_direction(one, one),
        lambda: stein.ksd(one, one),
    ):
        with pytest.raises(ValueError, match="at least 2 particles, got 1"):
            refused()


def test_one_particle_with_a_bandwidth_follows_its_score() -> None:
    score = np.array([[1.0, -2.0]], np.float32)
    np.testing.assert_allclose(stein.svgd_direction(np.ones((1, 2), np.float32), score, 1.0), score)
    np.testing.assert_allclose(stein.ksd(np.ones((1, 2), np.float32), score, 1.0), 5 + 4)  # |s|^2 + 2d/h


@pytest.mark.parametrize("apart", [0.0, 1.0], ids=["all", "most"])
def test_particles_that_coincide_leave_everything_finite(apart: float, precision: Any) -> None:
    x, scores = np.ones((9, 3), precision.dtype), np.ones((9, 3), precision.dtype)
    x[0] += apart
    assert float(bandwidth(cdist(x, x, "sqeuclidean").astype(x.dtype))) > 0
    assert np.all(np.isfinite(stein.svgd_direction(x, scores)))
    assert np.isfinite(stein.ksd(x, scores))
    assert all(np.isfinite(value) for value in stein.mean_hips(x, [scores, 2 * scores]))


def test_coinciding_particles_move_together() -> None:
    x = np.ones((4, 3), np.float32)
    scores = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_allclose(stein.svgd_direction(x, scores), np.tile(scores.mean(axis=0), (4, 1)), rtol=1e-6)


def test_the_bandwidth_is_a_constant_to_autodiff(double: Any) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)))
    of_particles = jax.jit(jax.value_and_grad(lambda t: stein.median_bandwidth(stein.squared_distances(t))))
    h, gradient = of_particles(x)
    assert np.all(np.asarray(gradient) == 0)
    free = jax.jit(jax.grad(lambda t: stein.ksd(t, x)))(x)
    fixed = jax.jit(jax.grad(lambda t: stein.ksd(t, x, h)))(x)
    double.close(free, fixed)
