"""The Gauss-Newton matrix of a log-likelihood: the Fisher information with the labels the model itself expects.

    H = sum_i w_i E_{y ~ p(. | x_i, theta)} [ grad log p(y | x_i, theta) grad log p(y | x_i, theta)' ]

For softmax and Gaussian outputs this is the generalised Gauss-Newton matrix, so it is positive semi-definite. The
labels are the model's, never the data's (that would be the empirical Fisher, which is neither). The expectation is
taken over all classes, or by three Gauss-Hermite nodes, which are exact for a Gaussian in its mean and log-precision;
``samples`` > 0 draws labels instead. Models may bring closed forms; any other goes through autodiff here.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.models.base import Blocks, Model, cut
from fedstein.shard import in_pieces

NODES = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))  # Gauss-Hermite, for a standard normal


def diagonal_fisher(model: Model, blocks: Blocks, x: Array, weights: Array, key: Array, samples: int) -> Blocks:
    """The diagonal of H at every particle, as blocks."""
    if model.diagonal_curvature is not None:
        return model.diagonal_curvature(blocks, x, weights, key, samples)
    return cut(by_autodiff(model, blocks, x, weights, key, samples, diagonal=True), model.widths)


def full_fisher(model: Model, blocks: Blocks, x: Array, weights: Array, key: Array, samples: int) -> Array:
    """H averaged over the particles, d x d."""
    if model.full_curvature is not None and not samples:
        return model.full_curvature(blocks, x, weights)
    return jnp.mean(by_autodiff(model, blocks, x, weights, key, samples, diagonal=False), axis=0)


def by_autodiff(
    model: Model, blocks: Blocks, x: Array, weights: Array, key: Array, samples: int, *, diagonal: bool
) -> Array:
    """N x d diagonals or N x d x d matrices, particle by particle and a few rows at a time."""
    theta = jnp.concatenate(blocks, axis=1)

    def row_score(one: Array, row: Array, label: Array) -> Array:
        def log_likelihood(theta: Array) -> Array:
            parts = cut(theta[None, :], model.widths)
            return model.log_likelihood(parts, row[None, :], label[None], jnp.ones(1, theta.dtype))[0]

        return jax.grad(log_likelihood)(one)

    def one_particle(number_and_theta: tuple[Array, Array]) -> Array:
        number, one = number_and_theta

        def piece(part: Array, rows: Array, row_weights: Array) -> Array:
            out = model.predict(cut(one[None, :], model.widths), rows)
            draws = jax.random.fold_in(jax.random.fold_in(key, number), part)
            total = jnp.zeros((model.dim,) if diagonal else (model.dim, model.dim), one.dtype)
            for labels, share in expected_labels(model, out, draws, samples):
                scores = jax.vmap(row_score, (None, 0, 0))(one, rows, labels)
                weighted = (row_weights * share)[:, None] * scores
                total = total + (jnp.sum(weighted * scores, axis=0) if diagonal else weighted.T @ scores)
            return total

        return in_pieces(piece, x, weights, size=64)

    return jax.lax.map(one_particle, (jnp.arange(theta.shape[0]), theta))


def expected_labels(model: Model, out: Array, key: Array, samples: int) -> list[tuple[Array, Array | float]]:
    """Labels of every row with their probabilities: pairs (labels, share of each row)."""
    if model.task == "classification":
        if samples:
            keys = jax.random.split(key, samples)
            return [(jax.random.categorical(k, out), 1 / samples) for k in keys]
        return [(jnp.full(out.shape[0], c, jnp.int32), jnp.exp(out[:, c])) for c in range(out.shape[1])]
    mean, spread = out[:, 0], jnp.exp(-0.5 * out[:, 1])
    if samples:
        keys = jax.random.split(key, samples)
        return [(mean + spread * jax.random.normal(k, mean.shape, mean.dtype), 1 / samples) for k in keys]
    return [(mean + node * spread, share) for node, share in NODES]
