"""Bayesian Poisson regression with a log link: theta = [w, b, log xi].

y ~ Poisson(exp(w . x + b)),   w and b as in ``models.glm``
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from fedstein.models.base import Blocks, Glm, Model, ModelKind, Units
from fedstein.models.glm import (
    COUNTS,
    CoefficientPrior,
    GlmSettings,
    block_diagonal,
    build_with,
    diagonal_of,
    matrix_of,
    regression,
)


class PoissonSettings(GlmSettings):
    """Settings of Poisson regression."""

    kind: str = "poisson"


def poisson_log_density(log_rate: Array, y: Array) -> Array:
    """log Poisson(y; exp(log_rate)) = y log_rate - exp(log_rate) - log y!"""
    return y * log_rate - jnp.exp(log_rate) - gammaln(y + 1.0)


def poisson_regression(
    features: int,
    *,
    prior_shape: float = 1.0,
    prior_rate: float = 1.0,
    intercept_sd: float = 5.0,
    start: str = "zero",
) -> Model:
    """Counts with a log-linear rate; the Fisher information of a row is its rate times x x'.

    Args:
        features: The number of features; ``prepare`` appends the intercept's column.
        prior_shape: Shape of the prior of the weights' precision xi.
        prior_rate: Rate of that prior.
        intercept_sd: Standard deviation of the intercept's prior.
        start: ``"zero"`` or ``"prior"``: where particles start.

    Returns:
        The model, with the blocks (coefficients, log xi). ``predict`` gives the mean and minus the log of the variance,
        which are equal up to the sign of the logarithm; ``log_density`` gives the Poisson's own log-probabilities.

    Raises:
        ValueError: ``start`` is unknown.
    """
    prior = CoefficientPrior(features, 1, prior_shape, prior_rate, intercept_sd, start)

    def log_density(blocks: Blocks, x: Array, y: Array) -> Array:
        return poisson_log_density(x @ blocks[0].T, y.astype(x.dtype)[:, None])

    def log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return weights @ log_density(blocks, x, y)

    def predict(blocks: Blocks, x: Array) -> Array:
        log_rate = x @ blocks[0].T
        return jnp.concatenate([jnp.exp(log_rate), -log_rate], axis=1)

    def sample(key: Array, blocks: Blocks, x: Array) -> Array:
        return jax.random.poisson(key, jnp.exp(x @ blocks[0].T)).astype(x.dtype)

    def information(blocks: Blocks, x: Array, weights: Array) -> Array:
        return weights[:, None] * jnp.exp(x @ blocks[0].T)

    def diagonal_curvature(blocks: Blocks, x: Array, weights: Array, key: Array, samples: int) -> Blocks:
        return diagonal_of(x, information(blocks, x, weights)), jnp.zeros_like(blocks[1])

    def full_curvature(blocks: Blocks, x: Array, weights: Array) -> Array:
        return block_diagonal(matrix_of(x, information(blocks, x, weights)), jnp.zeros(()))

    return regression(
        prior,
        name="poisson",
        task="regression",
        log_likelihood=log_likelihood,
        predict=predict,
        diagonal_curvature=diagonal_curvature,
        full_curvature=full_curvature,
        glm=Glm(lambda f, y, extra: poisson_log_density(f[0], y)),
        units=Units(),
        likelihood="other",
        sample=sample,
        log_density=log_density,
        target="count",
    )


POISSON = ModelKind(
    name="poisson",
    about="Bayesian Poisson regression of counts with a log link, theta = [w, b, log xi]",
    task="regression",
    settings=PoissonSettings,
    build=build_with(poisson_regression),
    traits=COUNTS,
)
