"""Bayesian softmax (multinomial logistic) regression: theta = [w_1, b_1, ..., w_C, b_C, log xi].

    p(y = c) = exp(f_c) / sum_k exp(f_k),   f_c = w_c . x + b_c,   w and b as in ``models.glm``

Every class has coefficients of its own, so that the prior treats classes alike. Adding one vector to all of them
changes no probability: the likelihood is flat in that direction, and the prior alone identifies it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.models.base import Blocks, Glm, Model, ModelKind, Units, log_mean_exp
from fedstein.models.glm import (
    TRAITS,
    CoefficientPrior,
    GlmSettings,
    block_diagonal,
    build_with,
    regression,
)


class SoftmaxSettings(GlmSettings):
    """Settings of softmax regression."""

    kind: str = "softmax"


def softmax_regression(
    features: int,
    classes: int,
    *,
    prior_shape: float = 1.0,
    prior_rate: float = 1.0,
    intercept_sd: float = 5.0,
    start: str = "zero",
) -> Model:
    """Labels 0 to classes - 1; the Fisher information of a row is (diag(p) - p p') x x' (Kronecker product).

    Args:
        features: The number of features; ``prepare`` appends the intercept's column.
        classes: The number of classes, at least two.
        prior_shape: Shape of the prior of the weights' precision xi.
        prior_rate: Rate of that prior.
        intercept_sd: Standard deviation of the intercepts' prior.
        start: ``"zero"`` or ``"prior"``: where particles start.

    Returns:
        The model, with the blocks (coefficients, classes x inputs in row-major order, and log xi).

    Raises:
        ValueError: ``start`` is unknown.
    """
    prior = CoefficientPrior(features, classes, prior_shape, prior_rate, intercept_sd, start)

    def log_probabilities(blocks: Blocks, x: Array) -> Array:
        n = blocks[0].shape[0]
        logits = (x @ blocks[0].reshape(n * classes, prior.inputs).T).reshape(x.shape[0], n, classes)
        return jax.nn.log_softmax(logits, axis=-1)  # rows x N x classes

    def log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return weights @ jnp.take_along_axis(log_probabilities(blocks, x), y[:, None, None], axis=-1)[..., 0]

    def diagonal_curvature(blocks: Blocks, x: Array, weights: Array, key: Array, samples: int) -> Blocks:
        p = jnp.exp(log_probabilities(blocks, x))
        found = jnp.einsum("inc,if->ncf", weights[:, None, None] * p * (1 - p), x * x)
        return found.reshape(blocks[0].shape), jnp.zeros_like(blocks[1])

    def full_curvature(blocks: Blocks, x: Array, weights: Array) -> Array:
        p = jnp.exp(log_probabilities(blocks, x))
        spread = jnp.mean(p, axis=1)[:, :, None] * jnp.eye(classes, dtype=p.dtype)
        spread = weights[:, None, None] * (spread - jnp.einsum("inc,ink->ick", p, p) / p.shape[1])
        pairs = spread.reshape(x.shape[0], -1)  # a product for every pair of classes, rows summed as a matrix product
        found = jax.lax.map(lambda column: x.T @ (column[:, None] * x), pairs.T)
        found = found.reshape(classes, classes, prior.inputs, prior.inputs).transpose(0, 2, 1, 3)
        return block_diagonal(found.reshape(prior.width, prior.width), jnp.zeros(()))

    return regression(
        prior,
        name="softmax",
        task="classification",
        log_likelihood=log_likelihood,
        predict=lambda blocks, x: log_mean_exp(log_probabilities(blocks, x), axis=1),
        diagonal_curvature=diagonal_curvature,
        full_curvature=full_curvature,
        glm=Glm(lambda f, y, extra: jax.nn.log_softmax(f)[y], predictors=classes),
        units=Units(classes),
        classes=classes,
    )


SOFTMAX = ModelKind(
    name="softmax",
    about="Bayesian softmax regression, any number of classes, theta = [w_1, b_1, ..., log xi]",
    task="classification",
    settings=SoftmaxSettings,
    build=build_with(softmax_regression, with_classes=True),
    traits=TRAITS._replace(parameters=lambda features, classes: classes * (features + 1)),
)
