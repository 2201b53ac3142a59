"""Random intercepts: the client's marginal likelihood against brute-force integration, and what it says of theta."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from fedstein import models
from fedstein.models.base import join
from fedstein.models.fisher import diagonal_fisher, full_fisher

KEY = jax.random.key(0)
GRID = np.linspace(-60, 60, 120_001)


def client(outcome: str, rows: int = 6) -> tuple[models.Model, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(4)
    x = draw.normal(size=(rows, 2))
    if outcome == "logistic":
        return models.random_intercept_logistic(2), x, (draw.uniform(size=rows) < 0.7).astype(np.int32)
    return models.random_intercept_linear(2), x, draw.normal(1.0, 1.0, size=rows)


def brute(outcome: str, theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """log p(y | theta), and mean and sd of the effect given y, by a sum over a fine grid of effects."""
    predictor, tau = np.c_[x, np.ones(len(x))] @ theta[:3], math.exp(theta[4])
    total = stats.norm(0, tau).logpdf(GRID)
    for value, label in zip(predictor, y, strict=True):
        if outcome == "logistic":
            total = total + np.log(np.maximum(expit((2 * label - 1) * (value + GRID)), 1e-300))
        else:
            total = total + stats.norm(value + GRID, math.exp(-0.5 * theta[5])).logpdf(label)
    top = total.max()
    shares = np.exp(total - top)
    mean = float(shares @ GRID / shares.sum())
    return (
        top + math.log(shares.sum() * (GRID[1] - GRID[0])),
        mean,
        float(np.sqrt(shares @ (GRID - mean) ** 2 / shares.sum())),
    )


@pytest.mark.parametrize("outcome", ["logistic", "linear"])
def test_the_marginal_likelihood_is_the_integral(outcome: str, double: Any) -> None:
    model, x, y = client(outcome)
    rows, ones = model.prepare(x), np.ones(len(y))
    theta = 0.7 * np.random.default_rng(1).normal(size=(5, model.dim))
    theta[:, 4] = [-3.0, -1.0, 0.0, 1.0, 2.0]  # log tau
    got = jax.jit(lambda t: model.log_likelihood(model.split(t), rows, y, ones))(theta)
    expected = [brute(outcome, t, x, y) for t in theta]
    np.testing.assert_allclose(got, [e[0] for e in expected], rtol=1e-4 if outcome == "logistic" else 1e-8)
    assert model.client_effect is not None
    mean, sd = model.client_effect(model.split(jnp.asarray(theta)), rows, y, ones)
    tolerance = 0.35 if outcome == "logistic" else 1e-6  # a Laplace approximation for labels, exact for Gaussians
    assert np.all(np.abs(mean - np.array([e[1] for e in expected])) <= tolerance * np.array([e[2] for e in expected]))
    np.testing.assert_allclose(sd, [e[2] for e in expected], rtol=tolerance)


@pytest.mark.parametrize("outcome", ["logistic", "linear"])
def test_scores_are_those_of_the_integral(outcome: str, double: Any) -> None:
    model, x, y = client(outcome)
    rows, ones = model.prepare(x), np.ones(len(y))
    theta = np.r_[0.4, -0.3, 0.2, 0.0, 0.3, 0.5][: model.dim]
    got = np.asarray(jax.jit(lambda t: join(model.likelihood_score(model.split(t), rows, y, ones)))(theta[None]))[0]
    for index in range(model.dim):
        move = 1e-4 * np.eye(model.dim)[index]
        change = brute(outcome, theta + move, x, y)[0] - brute(outcome, theta - move, x, y)[0]
        assert got[index] == pytest.approx(change / 2e-4, abs=2e-4)


@pytest.mark.parametrize("outcome", ["logistic", "linear"])
def test_padding_counts_nothing_and_pieces_would(outcome: str, double: Any) -> None:
    model, x, y = client(outcome)
    rows, ones = model.prepare(x), np.ones(len(y))
    blocks = model.split(jnp.asarray(np.full((1, model.dim), 0.2)))
    likelihood = jax.jit(model.log_likelihood)
    whole = likelihood(blocks, rows, y, ones)
    padded = likelihood(blocks, np.r_[rows, rows[-1:], rows[-1:]], np.r_[y, y[-1:], y[-1:]], np.r_[ones, 0.0, 0.0])
    np.testing.assert_allclose(padded, whole, rtol=1e-12)
    halves = sum(likelihood(blocks, rows[i::2], y[i::2], ones[i::2]) for i in (0, 1))
    assert abs(float((halves - whole)[0])) > 1e-2
    assert model.whole_shard
    assert models.MODELS[model.name].traits.whole_shard


@pytest.mark.parametrize("outcome", ["logistic", "linear"])
def test_the_curvature_is_that_of_the_whole_client(outcome: str, double: Any) -> None:
    """More rows than one piece holds: pieces would count as many clients as there are pieces."""
    model, x, y = client(outcome, rows=90)
    rows, ones = model.prepare(x), jnp.ones(len(y))
    theta = np.r_[0.4, -0.3, 0.2, 0.0, 0.3, 0.5][None, : model.dim]

    def total(t: jax.Array) -> jax.Array:
        return model.log_likelihood(model.split(t[None]), rows, y, ones)[0]

    hessian = np.asarray(-jax.jit(jax.hessian(total))(theta[0]))
    values, vectors = np.linalg.eigh(hessian)
    blocks = model.split(jnp.asarray(theta))
    full = jax.jit(lambda b: full_fisher(model, b, rows, ones, KEY, 0, y))(blocks)
    np.testing.assert_allclose(full, (vectors * np.maximum(values, 0)) @ vectors.T, atol=1e-8 * values.max())
    diagonal = join(jax.jit(lambda b: diagonal_fisher(model, b, rows, ones, KEY, 0, y))(blocks))
    np.testing.assert_allclose(diagonal[0], np.maximum(np.diag(hessian), 0), atol=1e-8 * values.max())


def test_predictions_are_for_a_client_whose_effect_is_unknown(double: Any) -> None:
    theta = np.array([[0.4, -0.3, 0.2, 0.0, 0.3, 0.5], [0.1, 0.8, -0.5, 0.0, -1.0, 0.0]])
    model, x, _ = client("logistic")
    rows = model.prepare(x)
    out = np.asarray(model.predict(model.split(jnp.asarray(theta[:, :5])), rows))
    effects = np.random.default_rng(0).normal(size=40_000)
    each = [expit((rows @ t[:3])[:, None] + math.exp(t[4]) * effects).mean(axis=1) for t in theta]
    np.testing.assert_allclose(np.exp(out[:, 1]), np.mean(each, axis=0), atol=5e-3)
    np.testing.assert_allclose(np.exp(out).sum(axis=1), 1, rtol=1e-9)
    model, x, _ = client("linear")
    out = np.asarray(model.predict(model.split(jnp.asarray(theta)), rows))
    np.testing.assert_allclose(out[:, :2], rows @ theta[:, :3].T, rtol=1e-9)
    np.testing.assert_allclose(np.exp(-out[0, 2:]), np.exp(-theta[:, 5]) + np.exp(2 * theta[:, 4]), rtol=1e-9)


def test_thirty_clients_find_the_scale_of_their_intercepts(double: Any) -> None:
    """The sum of the clients' log-likelihoods is maximal near the tau that made the data."""
    draw = np.random.default_rng(8)
    model = models.random_intercept_logistic(1)
    clients = []
    for _ in range(30):
        x = draw.normal(size=(40, 1))
        y = (draw.uniform(size=40) < expit(x[:, 0] + 0.3 + 1.2 * draw.normal())).astype(np.int32)
        clients.append((model.prepare(x), y))
    x, y = (np.stack(arrays) for arrays in zip(*clients, strict=True))
    log_tau = np.linspace(-2, 2, 41)
    theta = np.stack([np.array([1.0, 0.3, 0.0, value]) for value in log_tau])
    each = jax.jit(lambda t: jax.vmap(lambda a, b: model.log_likelihood(model.split(t), a, b, jnp.ones(40)))(x, y))
    best = math.exp(log_tau[np.argmax(np.asarray(each(theta)).sum(axis=0))])
    assert best == pytest.approx(1.2, abs=0.4)
