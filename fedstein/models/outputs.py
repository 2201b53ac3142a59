"""Likelihoods of a network's outputs f(x).

| name | outputs a row | y given f | expected curvature in f |
|---|---|---|---|
| categorical | classes | softmax(f) | diag(p) - p p' |
| bernoulli | 1 | Bernoulli(sigmoid(f)) | p (1 - p) |
| gaussian | 1 | N(f, 1 / gamma), log gamma in theta | gamma |
| poisson | 1 | Poisson(exp(f)) | exp(f) |

In every row f is the natural parameter (of a Gaussian: up to gamma), so that the generalised Gauss-Newton matrix
J' R R' J is the Fisher information, where J is the Jacobian of the outputs and R R' the matrix of the last column. The
columns of R are ``roots``. Labels that are drawn give columns (d log p / d f) / sqrt(samples), whose mean square is the
same.

Outputs have the shape rows x outputs: the functions here are for one particle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln


class OutputLikelihood(NamedTuple):
    """The likelihood of one kind of output; every function takes the outputs f of one particle and its log gamma.

    Attributes:
        task: ``"classification"`` or ``"regression"``.
        family: As ``Model.likelihood``.
        log_density: f, log gamma, y -> rows.
        predict: f, log gamma -> rows x classes log-probabilities, or rows x 2 (mean, minus the log of the variance).
        roots: f, log gamma, key, samples -> rows x columns x outputs.
        sample: key, f, log gamma -> rows draws of y.
        target: As ``Model.target``.
        noise: Whether theta has a log gamma.
    """

    task: str
    family: str
    log_density: Callable[[Array, Array, Array], Array]
    predict: Callable[[Array, Array], Array]
    roots: Callable[[Array, Array, Array, int], Array]
    sample: Callable[[Array, Array, Array], Array]
    target: str = "real"
    noise: bool = False


def _categorical_roots(f: Array, log_gamma: Array, key: Array, samples: int) -> Array:
    p, classes = jax.nn.softmax(f, axis=-1), f.shape[-1]
    if samples:
        drawn = jax.random.categorical(key, f[:, None, :], shape=(f.shape[0], samples))
        return (jax.nn.one_hot(drawn, classes, dtype=p.dtype) - p[:, None, :]) / math.sqrt(samples)
    return jnp.sqrt(p)[..., None] * (jnp.eye(classes, dtype=p.dtype) - p[:, None, :])


def _bernoulli_roots(f: Array, log_gamma: Array, key: Array, samples: int) -> Array:
    p = jax.nn.sigmoid(f)[:, :, None]  # rows x 1 x 1
    if samples:
        drawn = jax.random.uniform(key, (f.shape[0], samples, 1), p.dtype) < p
        return (drawn - p) / math.sqrt(samples)
    return jnp.sqrt(p * (1 - p))


def _gaussian_roots(f: Array, log_gamma: Array, key: Array, samples: int) -> Array:
    root = jnp.broadcast_to(jnp.exp(0.5 * log_gamma), (f.shape[0], 1, 1))
    if samples:
        return root * jax.random.normal(key, (f.shape[0], samples, 1), root.dtype) / math.sqrt(samples)
    return root


def _poisson_roots(f: Array, log_gamma: Array, key: Array, samples: int) -> Array:
    rate = jnp.exp(f)[:, :, None]
    if samples:
        return (jax.random.poisson(key, rate, (f.shape[0], samples, 1)) - rate) / math.sqrt(samples)
    return jnp.sqrt(rate)


CATEGORICAL = OutputLikelihood(
    task="classification",
    family="categorical",
    log_density=lambda f, log_gamma, y: jnp.take_along_axis(jax.nn.log_softmax(f, axis=-1), y[:, None], axis=1)[:, 0],
    predict=lambda f, log_gamma: jax.nn.log_softmax(f, axis=-1),
    roots=_categorical_roots,
    sample=lambda key, f, log_gamma: jax.random.categorical(key, f),
)
BERNOULLI = OutputLikelihood(
    task="classification",
    family="categorical",
    log_density=lambda f, log_gamma, y: jax.nn.log_sigmoid((2 * y - 1).astype(f.dtype) * f[:, 0]),
    predict=lambda f, log_gamma: jnp.concatenate([jax.nn.log_sigmoid(-f), jax.nn.log_sigmoid(f)], axis=1),
    roots=_bernoulli_roots,
    sample=lambda key, f, log_gamma: jax.random.bernoulli(key, jax.nn.sigmoid(f[:, 0])).astype(jnp.int32),
)
GAUSSIAN = OutputLikelihood(
    task="regression",
    family="gaussian",
    log_density=lambda f, log_gamma, y: (
        0.5 * (log_gamma - math.log(2 * math.pi) - jnp.exp(log_gamma) * (y - f[:, 0]) ** 2)
    ),
    predict=lambda f, log_gamma: jnp.stack([f[:, 0], jnp.broadcast_to(log_gamma, f.shape[:1])], axis=1),
    roots=_gaussian_roots,
    sample=lambda key, f, log_gamma: f[:, 0] + jnp.exp(-0.5 * log_gamma) * jax.random.normal(key, f.shape[:1], f.dtype),
    noise=True,
)
POISSON = OutputLikelihood(
    task="regression",
    family="other",
    log_density=lambda f, log_gamma, y: y * f[:, 0] - jnp.exp(f[:, 0]) - gammaln(y + 1),
    predict=lambda f, log_gamma: jnp.stack([jnp.exp(f[:, 0]), -f[:, 0]], axis=1),
    roots=_poisson_roots,
    sample=lambda key, f, log_gamma: jax.random.poisson(key, jnp.exp(f[:, 0])).astype(f.dtype),
    target="count",
)
OUTPUTS = {"categorical": CATEGORICAL, "bernoulli": BERNOULLI, "gaussian": GAUSSIAN, "poisson": POISSON}
