"""The SVGD direction against BlackJAX and autodiff; where SVGD ends up against known moments."""

from __future__ import annotations

from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array

from fedstein import stein
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.kernels import centred
from fedstein.stein.svgd import tilted_direction
from fedstein.stein.svgd_loop import svgd_loop


def sample(n: int, d: int, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def log_target(theta: Array) -> Array:
    return -0.25 * jnp.sum(theta**4) + theta[0] * theta[-1] + jnp.sum(jnp.sin(theta))


@pytest.mark.parametrize("bandwidth", [None, 0.8], ids=["median", "given"])
def test_one_step_is_that_of_blackjax(bandwidth: float | None, precision: Any) -> None:
    x = jnp.asarray(sample(11, 4, dtype=precision.dtype))
    # Its RBF kernel is exp(-||x - y||^2 / length_scale): the length scale is h itself.
    median = jax.jit(lambda t: stein.median_bandwidth(stein.squared_distances(t)))
    scale = median(x) if bandwidth is None else bandwidth
    algorithm = blackjax.svgd(jax.grad(log_target), optax.sgd(1.0))
    state = algorithm.init(x, {"length_scale": scale})
    moved = jax.jit(algorithm.step)(state)
    scores = jax.jit(jax.vmap(jax.grad(log_target)))(x)
    precision.close(x + stein.svgd_direction(x, scores, bandwidth), moved.particles, factor=3)
    if bandwidth is None:  # and BlackJAX's own median heuristic has the same bandwidth
        precision.close(median(moved.particles), moved.kernel_parameters["length_scale"], factor=3)


def test_the_direction_is_autodiff_of_its_definition(precision: Any) -> None:
    x, s = sample(9, 3, dtype=precision.dtype), sample(9, 3, 1, dtype=precision.dtype)

    def kernel(a: Array, b: Array) -> Array:
        return jnp.exp(-jnp.sum((a - b) ** 2) / 1.3)

    def phi(theta: Array) -> Array:
        return jnp.mean(jax.vmap(lambda a, sa: kernel(a, theta) * sa + jax.grad(kernel)(a, theta))(x, s), axis=0)

    precision.close(stein.svgd_direction(x, s, 1.3), jax.jit(jax.vmap(phi))(x), factor=3)


def test_blocks_give_the_same_as_one_array(precision: Any) -> None:
    x, s = sample(9, 3, dtype=precision.dtype), sample(9, 3, 1, dtype=precision.dtype)
    cut = [{"a": t[:, :1], "b": (t[:, 1:2], t[:, 2:])} for t in (x, s)]
    got = jax.tree.leaves(stein.svgd_direction(*cut))
    precision.close(np.concatenate(got, axis=1), stein.svgd_direction(x, s), factor=3)


@pytest.mark.parametrize(
    ("density", "with_scores", "bandwidth"), [("log", True, None), ("log", False, 1.1), ("reference", True, 1.1)]
)
def test_the_tilted_direction_adds_the_kde_scores(
    density: str, with_scores: bool, bandwidth: float | None, precision: Any
) -> None:
    x, s, y, z = (sample(n, 3, i, precision.dtype) for i, n in enumerate((9, 9, 5, 9)))
    scores = s if with_scores else np.zeros_like(s)
    kde_score = jax.jit(lambda at, centres: stein.kde_score(at, centres, 0.9, density, dim=2))
    explicit = scores + np.asarray(kde_score(x, y)) - np.asarray(kde_score(x, z))

    @jax.jit
    def tilted(x: Array, s: Array | None, y: Array, z: Array, h: Array | float | None) -> Array:
        offset, origin = centred(x)
        factors = (stein.Mixture(y, 1.0).relative_to(origin), stein.Mixture(z - origin, -1.0))
        return tilted_direction(offset, s, factors, bandwidth=h, kde_bandwidth=0.9, density=density, kde_dim=2)

    got = tilted(x, s if with_scores else None, y, z, bandwidth)
    expected = stein.svgd_direction(x, explicit, bandwidth)
    assert np.abs(np.asarray(expected) - np.asarray(stein.svgd_direction(x, scores, bandwidth))).max() > 1e-2
    precision.close(got, expected, factor=5)


def test_a_factor_and_its_inverse_cancel(precision: Any) -> None:
    x, s, y = (sample(9, 3, i, precision.dtype) for i in range(3))

    @jax.jit
    def tilted(x: Array, s: Array, y: Array) -> Array:
        offset, origin = centred(x)
        there = stein.Mixture(y, 1.0).relative_to(origin)
        return tilted_direction(offset, s, (there, there._replace(sign=-1.0)))

    precision.close(tilted(x, s, y), stein.svgd_direction(x, s))


def adagrad_walk(score: Any, start: np.ndarray, steps: int, step_size: float) -> np.ndarray:
    batched = jax.vmap(jax.grad(score))
    run = jax.jit(
        lambda x: svgd_loop(
            steps, x, lambda _, t: batched(t), (), tilted_direction, AdaGrad(step_size, 1e-9, decay=0.9)
        )[0]
    )
    return np.asarray(run(jnp.asarray(start)))


def test_svgd_loop_is_the_plain_loop(precision: Any) -> None:
    """Three steps with one KDE factor, written out; far from the origin, where the loop shifts its coordinates."""
    x, centres = 5 + sample(6, 2, dtype=precision.dtype), 5 + sample(4, 2, 1, dtype=precision.dtype)
    optimiser = AdaGrad(0.1, 0.5)
    score = jax.jit(jax.vmap(jax.grad(log_target)))
    kde_score = jax.jit(stein.kde_score)
    scale = precision.dtype.type(1e-2)

    @jax.jit
    def walked(x: Array, centres: Array) -> Array:
        factor = stein.Mixture(centres, -1.0)
        return svgd_loop(3, x, lambda n, t: scale * (1 + n) * score(t), (factor,), tilted_direction, optimiser)[0]

    theta, history = x, None
    for number in range(3):
        target = scale * (1 + number) * np.asarray(score(theta)) - np.asarray(kde_score(theta, centres))
        phi = np.asarray(stein.svgd_direction(theta, target.astype(precision.dtype)))
        history = phi**2 if history is None else 0.9 * history + 0.1 * phi**2
        theta = (theta + 0.1 * phi / (0.5 + np.sqrt(history))).astype(precision.dtype)
    precision.close(walked(x, centres), theta, factor=10)


def test_svgd_finds_the_moments_of_a_gaussian() -> None:
    mean, covariance = np.array([2.0, -1.0]), np.array([[1.0, 0.5], [0.5, 0.8]])
    inverse = np.linalg.inv(covariance).astype(np.float32)
    centre = mean.astype(np.float32)
    start = sample(100, 2, dtype=np.float32) - 3
    end = adagrad_walk(lambda t: -0.5 * (t - centre) @ inverse @ (t - centre), start, 1500, 0.02)
    np.testing.assert_allclose(end.mean(axis=0), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(end.T), covariance, atol=0.1)


def test_svgd_finds_both_modes_in_their_proportions() -> None:
    """1/3 N(-2, 1) + 2/3 N(2, 1) from N(-10, 1), the example of Liu and Wang (2016)."""

    def log_density(t: Array) -> Array:
        each = jnp.stack([jnp.log(1 / 3) - 0.5 * (t[0] + 2) ** 2, jnp.log(2 / 3) - 0.5 * (t[0] - 2) ** 2])
        return jax.nn.logsumexp(each)

    end = adagrad_walk(log_density, sample(100, 1, dtype=np.float32) - 10, 2500, 0.1)[:, 0]
    np.testing.assert_allclose(end.mean(), 2 / 3, atol=0.15)
    np.testing.assert_allclose((end**2).mean(), 5.0, atol=0.4)
    np.testing.assert_allclose((end > 0).mean(), (1 / 3) * 0.02275 + (2 / 3) * 0.97725, atol=0.05)


def test_adagrad_by_hand(precision: Any) -> None:
    """g = 2, 1, -3 with step 0.1, epsilon 0.5: h = 4, 3.7, 4.23; the first block stands still."""
    rule = AdaGrad(0.1, 0.5)
    theta = (jnp.zeros((1, 1), precision.dtype), jnp.ones((1, 1), precision.dtype))
    history = rule.init(theta)
    expected = 1.0
    for number, (g, h) in enumerate([(2.0, 4.0), (1.0, 3.7), (-3.0, 4.23)]):
        phi = (jnp.zeros((1, 1), precision.dtype), jnp.full((1, 1), g, precision.dtype))
        theta, history = rule.step(jnp.int32(number), theta, phi, history)
        expected += 0.1 * g / (0.5 + h**0.5)
        precision.close(history[1], [[h]])
        precision.close(theta[1], [[expected]])
        assert theta[1].dtype == precision.dtype
    assert float(theta[0][0, 0]) == 0


def test_the_first_adagrad_step_forgets_what_was_before() -> None:
    rule = AdaGrad(1.0, 0.0)
    theta, history = rule.step(jnp.int32(0), jnp.zeros((1, 2)), jnp.array([[3.0, -0.2]]), jnp.full((1, 2), 100.0))
    np.testing.assert_allclose(theta, [[1.0, -1.0]], rtol=1e-6)
    np.testing.assert_allclose(history, [[9.0, 0.04]], rtol=1e-6)
