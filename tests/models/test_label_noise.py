"""A network that expects wrong labels: its likelihood, its curvature and its predictions against the definition."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein import models
from fedstein.errors import InputError

CLASSES, NOISE = 4, 0.3


def made(noise: float) -> models.Model:
    return models.bnn_classifier(3, CLASSES, hidden=(5,), label_noise=noise)


@pytest.fixture
def case(double: Any) -> tuple[Any, Any, Any]:
    model = made(NOISE)
    theta = model.init(jax.random.key(0), 2)
    return theta, jnp.asarray(np.random.default_rng(0).normal(size=(6, 3))), jnp.array([0, 1, 2, 3, 0, 1])


def noisy(clean: Any) -> Any:
    """The probability of every observed label from those of the true labels: a channel matrix."""
    channel = np.full((CLASSES, CLASSES), NOISE / (CLASSES - 1))
    np.fill_diagonal(channel, 1 - NOISE)
    return clean @ channel


def test_the_likelihood_is_that_of_true_labels_sent_through_a_noisy_channel(case: Any) -> None:
    theta, x, y = case
    model, weights = made(NOISE), jnp.arange(1.0, 7.0)
    for particle in theta:
        blocks = model.split(particle[None])
        clean = np.exp(np.asarray(made(0.0).predict(blocks, x)))
        expected = np.sum(np.log(noisy(clean)[np.arange(6), y]) * weights)
        np.testing.assert_allclose(model.log_likelihood(blocks, x, y, weights)[0], expected, rtol=1e-10)
        np.testing.assert_allclose(np.exp(np.asarray(model.predict(blocks, x))), clean, rtol=1e-12)


def test_the_curvature_is_the_fisher_information_of_the_noisy_labels(case: Any) -> None:
    theta, x, _ = case
    model, weights = made(NOISE), jnp.arange(1.0, 7.0)
    blocks = model.split(theta[:1])
    law = noisy(np.exp(np.asarray(made(0.0).predict(blocks, x))))

    def density(flat: Any, row: Any, label: Any) -> Any:
        return model.log_likelihood(model.split(flat[None]), row[None], label[None], jnp.ones(1))[0]

    rows, labels = np.repeat(np.arange(6), CLASSES), np.tile(np.arange(CLASSES), 6)
    scores = jax.jit(jax.vmap(jax.grad(density), (None, 0, 0)))(theta[0], x[rows], jnp.asarray(labels))
    expected = (np.asarray(weights)[rows] * law[rows, labels]) @ np.asarray(scores) ** 2
    assert model.diagonal_curvature is not None
    curvature = jax.jit(model.diagonal_curvature, static_argnums=4)
    exact = curvature(blocks, x, weights, jax.random.key(1), 0)
    np.testing.assert_allclose(np.concatenate([np.ravel(b) for b in exact]), expected, rtol=1e-8, atol=1e-12)
    drawn = curvature(blocks, x, weights, jax.random.key(1), 4000)
    np.testing.assert_allclose(np.concatenate([np.ravel(b) for b in drawn]), expected, rtol=0.2, atol=0.02)


def test_a_label_that_is_disbelieved_pulls_little_and_noise_without_end_is_refused(double: Any) -> None:
    """One unit and no hidden weights to speak of: the pull of a label that has probability p is 1 - p times less."""
    x, y, weights = jnp.ones((1, 3)), jnp.array([0]), jnp.ones(1)
    pulls = {}
    for noise in (0.0, NOISE):
        model = made(noise)
        blocks = list(model.split(jnp.zeros((1, model.dim))))
        blocks[3] = jnp.array([[-6.0, 6.0, 0.0, 0.0]])  # biases of the outputs: label 0 is very unlikely
        score = model.likelihood_score(tuple(blocks), x, y, weights)
        pulls[noise] = float(score[3][0, 0])
    assert pulls[0.0] > 0.99
    assert pulls[NOISE] < 1e-3
    with pytest.raises(InputError, match=r"with 4 classes expected less than 0.75"):
        made(0.8)
