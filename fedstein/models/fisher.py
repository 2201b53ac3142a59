"""The curvature of a log-likelihood: the Fisher information, or the Hessian of the observed rows.

    H = sum_i w_i E_{y ~ p(. | x_i, theta)} [ grad log p(y | x_i, theta) grad log p(y | x_i, theta)' ]

For softmax and Gaussian outputs this is the generalised Gauss-Newton matrix, so it is positive semi-definite. The
labels are the model's, not the data's (that would be the empirical Fisher, which is neither). Every y at which the
likelihood is asked lies in its support. ``Model.likelihood`` says how the expectation is taken:

- "categorical": over all classes, exactly.
- "gaussian": by three Gauss-Hermite nodes, which are exact for a Gaussian in its mean and log-precision.
- "other": over draws of ``Model.sample``. A model without one gets the Hessian of the observed rows,

      H = - sum_i w_i grad^2 log p(y_i | x_i, theta),

  by autodiff, averaged over the particles and made positive semi-definite by clipping its eigenvalues at zero.

``samples`` > 0 draws labels in place of the exact expectations. Models may bring closed forms; any other goes through
autodiff here.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.errors import InputError
from fedstein.models.base import Blocks, Model, cut
from fedstein.models.chunks import sum_over_chunks

NODES = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))  # Gauss-Hermite, for a standard normal
OWN_DRAWS = 16  # draws of a model's own sampler for each row, unless the caller says how many
ROWS = 64  # the rows of one piece
DIRECTIONS = 32  # Hessian-vector products at a time, for a diagonal


def diagonal_fisher(
    model: Model, blocks: Blocks, x: Array, weights: Array, key: Array, samples: int, y: Array | None = None
) -> Blocks:
    """The diagonal of H at every particle.

    Args:
        model: The model.
        blocks: The particles as blocks.
        x: The rows.
        weights: Their weights.
        key: For labels that are drawn.
        samples: Labels to draw for each row; 0 takes the expectation.
        y: The observed targets, which a model of likelihood "other" without closed forms and sampler needs.

    Returns:
        The diagonals, none of them negative, as blocks.

    Raises:
        InputError: The model needs y, and there is none.
    """
    if model.diagonal_curvature is not None:
        return model.diagonal_curvature(blocks, x, weights, key, samples)
    if uses_observed_rows(model):
        return cut(jnp.maximum(observed(model, blocks, x, y, weights, diagonal=True), 0), model.widths)
    return cut(by_autodiff(model, blocks, x, weights, key, samples, diagonal=True), model.widths)


def full_fisher(
    model: Model, blocks: Blocks, x: Array, weights: Array, key: Array, samples: int, y: Array | None = None
) -> Array:
    """H averaged over the particles, d x d and positive semi-definite; arguments as for ``diagonal_fisher``."""
    if model.full_curvature is not None and not samples:
        return model.full_curvature(blocks, x, weights)
    if uses_observed_rows(model):
        return nearest_semidefinite(jnp.mean(observed(model, blocks, x, y, weights, diagonal=False), axis=0))
    return jnp.mean(by_autodiff(model, blocks, x, weights, key, samples, diagonal=False), axis=0)


def uses_observed_rows(model: Model) -> bool:
    """Whether nothing is known of the labels that the model expects, so that those of the rows are used."""
    return model.whole_shard or (model.family == "other" and model.sample is None)


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
            draws = jax.random.fold_in(jax.random.fold_in(key, number), part)
            total = jnp.zeros((model.dim,) if diagonal else (model.dim, model.dim), one.dtype)
            parts = cut(one[None, :], model.widths)
            for asked, labels, shares in expected_labels(model, parts, rows, row_weights, draws, samples):
                scores = jax.vmap(row_score, (None, 0, 0))(one, asked, labels)
                weighted = shares[:, None] * scores
                total = total + (jnp.sum(weighted * scores, axis=0) if diagonal else weighted.T @ scores)
            return total

        return sum_over_chunks(piece, x, weights, size=ROWS)

    return jax.lax.map(one_particle, (jnp.arange(theta.shape[0]), theta))


def expected_labels(
    model: Model, one: Blocks, x: Array, weights: Array, key: Array, samples: int
) -> list[tuple[Array, Array, Array]]:
    """The labels that one particle expects for every row.

    Args:
        model: The model.
        one: The particle, as blocks.
        x: The rows.
        weights: Their weights.
        key: For labels that are drawn.
        samples: Labels to draw for each row; 0 takes the expectation.

    Returns:
        Triples (rows, labels, shares): a sum over all of them with these shares is the weighted sum over rows of
        expectations over y.
    """
    if model.family == "other":
        assert model.sample is not None
        draws = samples or OWN_DRAWS
        tiled = jnp.tile(x, (draws, 1))  # one call of the sampler: its loops are slow to compile
        return [(tiled, model.sample(key, one, tiled)[:, 0], jnp.tile(weights, draws) / draws)]
    out = model.predict(one, x)
    if model.family == "categorical":
        if samples:
            keys = jax.random.split(key, samples)
            return [(x, jax.random.categorical(k, out), weights * (1 / samples)) for k in keys]
        labels = [jnp.full(out.shape[0], c, jnp.int32) for c in range(out.shape[1])]
        return [(x, label, weights * jnp.exp(out[:, c])) for c, label in enumerate(labels)]
    mean, spread = out[:, 0], jnp.exp(-0.5 * out[:, 1])
    if samples:
        keys = jax.random.split(key, samples)
        draw = [mean + spread * jax.random.normal(k, mean.shape, mean.dtype) for k in keys]
        return [(x, labels, weights * (1 / samples)) for labels in draw]
    return [(x, mean + node * spread, weights * share) for node, share in NODES]


def observed(model: Model, blocks: Blocks, x: Array, y: Array | None, weights: Array, *, diagonal: bool) -> Array:
    """Minus the Hessian of the observed rows' log-likelihood at every particle, or its diagonal, as it is."""
    if y is None:
        raise InputError(
            f"model {model.name!r}: its curvature is the Hessian of the observed rows, so it needs y; pass y, give the "
            "model a sampler (sample=...), or declare likelihood='gaussian' if it is one"
        )

    def value(one: Array, rows: Array, labels: Array, row_weights: Array) -> Array:
        return model.log_likelihood(cut(one[None, :], model.widths), rows, labels, row_weights)[0]

    def one_particle(one: Array) -> Array:
        def piece(part: Array, rows: Array, labels: Array, row_weights: Array) -> Array:
            if not diagonal:
                return -jax.hessian(value)(one, rows, labels, row_weights)

            def entry(index: Array) -> Array:
                direction = jnp.zeros_like(one).at[index].set(1)
                score = jax.grad(lambda theta: value(theta, rows, labels, row_weights))
                return -jax.jvp(score, (one,), (direction,))[1][index]

            return jax.lax.map(entry, jnp.arange(model.dim), batch_size=min(DIRECTIONS, model.dim))

        return sum_over_chunks(piece, x, y, weights, size=x.shape[0] if model.whole_shard else ROWS)

    return jax.lax.map(one_particle, jnp.concatenate(blocks, axis=1))


def nearest_semidefinite(matrix: Array) -> Array:
    """The nearest positive semi-definite matrix (Frobenius norm): V max(lambda, 0) V'."""
    values, vectors = jnp.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * jnp.maximum(values, 0)) @ vectors.T
