"""Distances against SciPy, and what the edge of ``fedstein.stein`` refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from fedstein import stein
from fedstein.stein.kernels import combine

distances = jax.jit(stein.squared_distances)  # one program in place of a dozen small ones


def draws(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_squared_distances_are_those_of_scipy(precision: Any) -> None:
    a, b = draws(13, 4).astype(precision.dtype), draws(9, 4, seed=1).astype(precision.dtype) + 2
    precision.close(distances(a), cdist(a, a, "sqeuclidean"))
    precision.close(distances(a, b), cdist(a, b, "sqeuclidean"))
    assert distances(a).dtype == precision.dtype


def test_distances_to_oneself_are_exactly_zero_and_none_is_negative(precision: Any) -> None:
    a = (draws(30, 50) * 100).astype(precision.dtype)
    a[7] = a[3]
    squared = np.asarray(distances(a))
    assert np.all(np.diag(squared) == 0)
    assert np.all(squared >= 0)
    np.testing.assert_array_equal(squared, squared.T)


def test_distances_of_blocks_are_those_of_the_joined_array(precision: Any) -> None:
    a, b = draws(8, 6).astype(precision.dtype), draws(5, 6, seed=1).astype(precision.dtype)
    blocks = (a[:, :1], a[:, 1:4], a[:, 4:]), (b[:, :1], b[:, 1:4], b[:, 4:])
    precision.close(distances(*blocks), cdist(a, b, "sqeuclidean"))
    precision.close(distances(blocks[0]), cdist(a, a, "sqeuclidean"))


def test_particles_close_together_far_from_the_origin_do_not_cancel() -> None:
    a = (1e3 + 1e-2 * draws(20, 10)).astype(np.float32)
    b = (1e3 + 1e-2 * draws(7, 10, seed=1)).astype(np.float32)
    # A Gram product around the origin would be off by about 1e7 * 1e-7 = 1, a thousand times the distances.
    for got, exact in [
        (distances(a), cdist(a.astype(float), a.astype(float), "sqeuclidean")),
        (distances(a, b), cdist(a.astype(float), b.astype(float), "sqeuclidean")),
    ]:
        np.testing.assert_allclose(got, exact, rtol=1e-3, atol=1e-6)


def test_svgd_and_ksd_do_not_cancel_either() -> None:
    near, scores = (1e-2 * draws(12, 3)).astype(np.float32), draws(12, 3, seed=1).astype(np.float32)
    far = (near + np.float32(1e3)).astype(np.float32)
    near = (far - np.float32(1e3)).astype(np.float32)  # exactly the same offsets
    np.testing.assert_allclose(stein.ksd(far, scores), stein.ksd(near, scores), rtol=1e-3)
    phi = np.asarray(stein.svgd_direction(near, scores))
    np.testing.assert_allclose(stein.svgd_direction(far, scores), phi, rtol=0, atol=1e-3 * np.abs(phi).max())
    kde_score = jax.jit(lambda x: stein.kde_score(x, x[:5], bandwidth=0.01))
    pulled = np.asarray(kde_score(near))
    np.testing.assert_allclose(kde_score(far), pulled, rtol=0, atol=2e-3 * np.abs(pulled).max())


@given(shift=st.floats(-100, 100), scale=st.floats(0.1, 10))
def test_distances_are_invariant_under_translation_and_scale_with_the_square(shift: float, scale: float) -> None:
    with jax.enable_x64(True):
        a = draws(6, 3)
        np.testing.assert_allclose(distances(scale * a + shift), scale**2 * cdist(a, a, "sqeuclidean"), atol=1e-9)


def test_combine_is_the_sum_of_products(precision: Any) -> None:
    c, e, a, b = (draws(4, 4, seed=i).astype(precision.dtype) for i in range(4))
    got = jax.jit(lambda c, e, a, b: combine([(c, {"p": a}), (e, {"p": b})]))(c, e, a, b)
    precision.close(got["p"], c @ a + e @ b)


FLOAT32 = draws(4, 2).astype(np.float32)
DOUBLE = draws(4, 2)
EDGES: dict[str, Callable[[Any], Any]] = {
    "svgd_direction particles": lambda x: stein.svgd_direction(x, FLOAT32),
    "svgd_direction scores": lambda x: stein.svgd_direction(FLOAT32, x),
    "ksd particles": lambda x: stein.ksd(x, FLOAT32),
    "ksd scores": lambda x: stein.ksd(FLOAT32, x),
    "hip scores_b": lambda x: stein.hip(FLOAT32, FLOAT32, x),
    "hip_terms scores_a": lambda x: stein.hip_terms(FLOAT32, x, FLOAT32),
    "mean_hips particles": lambda x: stein.mean_hips(x, [FLOAT32, FLOAT32]),
    "mean_hips scores": lambda x: stein.mean_hips(FLOAT32, [FLOAT32, x]),
    "kde_score points": lambda x: stein.kde_score(x, FLOAT32),
    "kde_score centres": lambda x: stein.kde_score(FLOAT32, x),
    "kde_log_density points": lambda x: stein.kde_log_density(x, FLOAT32),
    "kde_log_density centres": lambda x: stein.kde_log_density(FLOAT32, x),
    "squared_distances a": lambda x: stein.squared_distances(x),
    "squared_distances b": lambda x: stein.squared_distances(FLOAT32, x),
}


@pytest.mark.parametrize("edge", EDGES)
def test_float64_without_the_x64_flag_is_refused_with_a_remedy(edge: str) -> None:
    assert not jax.config.jax_enable_x64
    with pytest.raises(TypeError, match=r"float64.*jax_enable_x64"):
        EDGES[edge](DOUBLE)


@pytest.mark.parametrize("edge", EDGES)
def test_float64_with_the_flag_is_kept(edge: str) -> None:
    with jax.enable_x64(True):
        leaves = jax.tree.leaves(jax.eval_shape(EDGES[edge], DOUBLE))
        if edge == "hip_terms scores_a":
            leaves = leaves[:2]  # the other two know the float32 particles and scores alone
        assert [leaf.dtype for leaf in leaves] == [np.float64] * len(leaves)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("shape", [(2,), (4, 2, 1), (4, 1), (4, 3)], ids=str)
def test_wrong_shapes_are_value_errors(edge: str, shape: tuple[int, ...]) -> None:
    if edge == "squared_distances a" and len(shape) == 2:
        pytest.skip("any N x d array is fine alone")
    with pytest.raises(ValueError, match="shape"):
        EDGES[edge](np.zeros(shape, np.float32))


@pytest.mark.parametrize("edge", [edge for edge in EDGES if "scores" in edge])
def test_scores_for_another_number_of_particles_are_value_errors(edge: str) -> None:
    with pytest.raises(ValueError, match="shape"):
        EDGES[edge](np.zeros((5, 2), np.float32))


def test_blocks_with_different_numbers_of_particles_are_value_errors() -> None:
    with pytest.raises(ValueError, match="particles"):
        stein.svgd_direction((FLOAT32, FLOAT32[:3]), (FLOAT32, FLOAT32[:3]))


def test_lists_of_numbers_and_integers_are_taken_as_floats() -> None:
    listed, scores = [[0, 0], [1, 2], [3, 1]], [[1, 0], [0, 1], [1, 1]]
    expected = stein.svgd_direction(np.array(listed, np.float32), np.array(scores, np.float32))
    np.testing.assert_array_equal(stein.svgd_direction(listed, scores), expected)
    np.testing.assert_array_equal(stein.svgd_direction(np.array(listed), np.array(scores)), expected)
