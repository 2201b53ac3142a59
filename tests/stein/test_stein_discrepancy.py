"""Theorem 1 against automatic and numerical derivatives of the kernel, and the identities that follow from it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array
from jax.test_util import check_grads

from fedstein import stein
from fedstein.stein.kernels import centred

H = 1.7


def kernel(x: Array, y: Array) -> Array:
    """The definition, of two vectors: all that the references below know."""
    return jnp.exp(-jnp.sum((x - y) ** 2) / H)


def sample(n: int, d: int, seed: int, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return tuple(draw.normal(size=(n, d)).astype(dtype) for _ in range(3))  # type: ignore[return-value]


def terms_by_autodiff(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> list[Any]:
    def pair(xi: Array, xj: Array, ai: Array, bj: Array) -> list[Array]:
        by_i, by_j = jax.grad(kernel, 0)(xi, xj), jax.grad(kernel, 1)(xi, xj)
        mixed = jax.jacfwd(jax.grad(kernel, 0), 1)(xi, xj)
        return [ai @ bj * kernel(xi, xj), ai @ by_j, by_i @ bj, jnp.trace(mixed)]

    pairs = jax.vmap(jax.vmap(pair, (None, 0, None, 0)), (0, None, 0, None))
    return [np.mean(t) for t in jax.jit(pairs)(x, x, a, b)]


@pytest.mark.parametrize(("n", "d"), [(2, 1), (9, 4)])
def test_each_term_against_autodiff_of_the_kernel(n: int, d: int, precision: Any) -> None:
    x, a, b = sample(n, d, n, precision.dtype)
    got = stein.hip_terms(x, a, b, H)
    precision.close(got, terms_by_autodiff(x, a, b), factor=2)
    precision.close(stein.hip(x, a, b, H), sum(got))


def test_each_term_against_finite_differences(double: Any) -> None:
    x, a, b = sample(4, 2, 0)
    e = 1e-4

    def k(u: np.ndarray, v: np.ndarray) -> float:
        return float(np.exp(-(np.linalg.norm(u - v) ** 2) / H))

    total = np.zeros(4)
    for i in range(4):
        for j in range(4):
            total[0] += k(x[i], x[j]) * (a[i] @ b[j])
            for c, step in enumerate(e * np.eye(2)):
                total[1] += a[i, c] * (k(x[i], x[j] + step) - k(x[i], x[j] - step)) / (2 * e)
                total[2] += b[j, c] * (k(x[i] + step, x[j]) - k(x[i] - step, x[j])) / (2 * e)
                plus = k(x[i] + step, x[j] + step) + k(x[i] - step, x[j] - step)
                minus = k(x[i] + step, x[j] - step) + k(x[i] - step, x[j] + step)
                total[3] += (plus - minus) / (4 * e * e)
    np.testing.assert_allclose(stein.hip_terms(x, a, b, H), total / 16, rtol=1e-6, atol=1e-7)


def test_hip_is_symmetric_and_with_itself_the_ksd(precision: Any) -> None:
    x, a, b = sample(9, 4, 1, precision.dtype)
    precision.close(stein.hip(x, a, b), stein.hip(x, b, a))
    precision.close(stein.ksd(x, a), stein.hip(x, a, a))
    assert abs(float(stein.hip(x, a, b)) - float(stein.hip(x, a, a))) > 0.01  # the scores do matter


def test_lemma_3_the_mean_score_gives_the_mean_of_the_pairwise_hips(precision: Any) -> None:
    x, *_ = sample(9, 4, 2, precision.dtype)
    scores = [sample(9, 4, 10 + k, precision.dtype)[1] for k in range(4)]
    mean = np.mean(scores, axis=0, dtype=precision.dtype)
    together = stein.mean_hips(x, scores)
    for k, score in enumerate(scores):
        pairwise = np.mean([float(stein.hip(x, score, other)) for other in scores])
        precision.close(stein.hip(x, score, mean), pairwise, factor=2)
        precision.close(together[k], pairwise, factor=2)
    # and the mean of all of them is the discrepancy of the mean score
    precision.close(np.mean(together), stein.ksd(x, mean), factor=2)


def test_mean_hips_takes_a_bandwidth_and_blocks(precision: Any) -> None:
    x, a, b = sample(9, 4, 3, precision.dtype)
    blocks = [(t[:, :1], t[:, 1:]) for t in (x, a, b)]
    mean = (a + b) / 2
    expected = [stein.hip(x, a, mean, H), stein.hip(x, b, mean, H)]
    precision.close(stein.mean_hips(x, [a, b], H), expected)
    precision.close(stein.mean_hips(blocks[0], blocks[1:], H), expected)


@given(st.integers(0, 10_000), st.floats(0.05, 50), st.floats(0, 5))
def test_ksd_is_never_negative(seed: int, bandwidth: float, size: float) -> None:
    with jax.enable_x64(True):
        x, s, _ = sample(7, 3, seed)
        assert float(stein.ksd(x, size * s, bandwidth)) >= -1e-12
        assert float(stein.ksd(x, size * s)) >= -1e-12


@given(st.integers(0, 10_000))
def test_hip_obeys_cauchy_schwarz(seed: int) -> None:
    with jax.enable_x64(True):
        x, a, b = sample(7, 3, seed)
        bound = np.sqrt(float(stein.ksd(x, a)) * float(stein.ksd(x, b)))
        assert abs(float(stein.hip(x, a, b))) <= bound * (1 + 1e-12)


def test_ksd_tells_a_sample_of_the_target_from_others(precision: Any) -> None:
    draw = np.random.default_rng(0)
    mean, factor = np.array([1.0, -2.0]), np.array([[1.0, 0.0], [0.6, 0.5]])
    exact = mean + draw.normal(size=(1500, 2)) @ factor.T

    def discrepancy(x: np.ndarray) -> float:
        score = -np.linalg.solve(factor @ factor.T, (x - mean).T).T
        return float(stein.ksd(x.astype(precision.dtype), score.astype(precision.dtype)))

    at_target = discrepancy(exact)
    assert 0 <= at_target < 0.06  # the V-statistic's diagonal: of order 1/N
    assert discrepancy(exact + 1) > 5 * at_target
    assert discrepancy(mean + 0.5 * (exact - mean)) > 5 * at_target
    assert discrepancy(mean + 2 * (exact - mean)) > 5 * at_target


def log_target(theta: Array) -> Array:
    """A curved two-mode density in three dimensions."""
    return jnp.logaddexp(-jnp.sum((theta - 1) ** 2), -0.5 * jnp.sum((theta + 1) ** 2)) - 0.1 * theta[0] ** 4


def other_target(theta: Array) -> Array:
    return -jnp.sum(jnp.cosh(theta - 0.5)) + theta[0] * theta[1]


def test_ksd_and_hip_are_the_rates_at_which_the_free_energies_fall(double: Any) -> None:
    """Move every particle by eps * phi: the rate of E[-log p] - E[log |det(I + eps grad phi)|] at eps = 0."""
    x = jnp.asarray(sample(6, 3, 4)[0])
    scores, others = (jax.jit(jax.vmap(jax.grad(target)))(x) for target in (log_target, other_target))

    def phi(theta: Array) -> Array:  # the field from its definition
        each = jax.vmap(lambda xj, sj: kernel(xj, theta) * sj + jax.grad(kernel, 0)(xj, theta))(x, scores)
        return jnp.mean(each, axis=0)

    def free_energy(eps: Array, target: Any) -> Array:
        def particle(theta: Array) -> Array:
            stretch = jnp.linalg.slogdet(jnp.eye(3) + eps * jax.jacfwd(phi)(theta))[1]
            return -target(theta + eps * phi(theta)) - stretch

        return jnp.mean(jax.vmap(particle)(x))

    rate = jax.jit(jax.grad(free_energy), static_argnums=1)
    double.close(stein.svgd_direction(x, scores, H), jax.jit(jax.vmap(phi))(x))
    double.close(stein.ksd(x, scores, H), -rate(0.0, log_target))
    double.close(stein.hip(x, scores, others, H), -rate(0.0, other_target))


def test_a_frame_gives_the_same_ksd(precision: Any) -> None:
    x, a, b = sample(9, 4, 5, precision.dtype)
    for bandwidth in (None, H):
        frame = jax.jit(lambda t, h: stein.frame_of(centred(t)[0], h))(x + 3, bandwidth)
        for score in (a, b):
            precision.close(jax.jit(stein.ksd_in)(frame, score), stein.ksd(x, score, bandwidth), factor=3)


def test_blocks_give_the_same_as_one_array(precision: Any) -> None:
    x, a, b = sample(9, 4, 6, precision.dtype)
    cut = [{"w": t[:, :3], "b": t[:, 3:]} for t in (x, a, b)]
    precision.close(stein.hip_terms(*cut), stein.hip_terms(x, a, b))
    precision.close(stein.ksd(*cut[:2]), stein.ksd(x, a))


def test_gradients_of_ksd_and_hip_against_finite_differences(double: Any) -> None:
    x, a, b = (jnp.asarray(t) for t in sample(5, 3, 7))
    check_grads(lambda t, s: stein.ksd(t, s, H), (x, a), order=1, modes=("rev", "fwd"), rtol=1e-6)
    check_grads(lambda t, s, r: stein.hip(t, s, r, H), (x, a, b), order=1, modes=("rev", "fwd"), rtol=1e-6)
