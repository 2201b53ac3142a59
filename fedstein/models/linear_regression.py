"""Bayesian linear regression with unknown noise: theta = [w, b, log xi, log gamma].

y ~ N(w . x + b, 1 / gamma),   gamma ~ Gamma(noise_shape, noise_rate),   w and b as in ``models.glm``
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from fedstein.models.base import Blocks, Glm, Model, ModelKind, Units
from fedstein.models.glm import (
    TRAITS,
    CoefficientPrior,
    GammaParameter,
    GlmSettings,
    block_diagonal,
    build_with,
    diagonal_of,
    matrix_of,
    regression,
)
from fedstein.settings import PositiveFloat


class LinearSettings(GlmSettings):
    """Settings of linear regression."""

    kind: str = "linear"
    intercept_sd: PositiveFloat = Field(10.0, description="Standard deviation of the intercept's Gaussian prior.")
    noise_shape: PositiveFloat = Field(1.0, description="Shape of the prior Gamma(shape, rate) of the noise precision.")
    noise_rate: PositiveFloat = Field(0.1, description="Rate of that prior.")


def gaussian_log_density(mean: Array, y: Array, log_precision: Array) -> Array:
    """log N(y; mean, 1 / precision)."""
    return 0.5 * (log_precision - math.log(2 * math.pi) - jnp.exp(log_precision) * (y - mean) ** 2)


def linear_regression(
    features: int,
    *,
    prior_shape: float = 1.0,
    prior_rate: float = 1.0,
    intercept_sd: float = 10.0,
    noise_shape: float = 1.0,
    noise_rate: float = 0.1,
    start: str = "zero",
) -> Model:
    """Linear regression with Gaussian noise.

    The Fisher information is gamma x x' for the coefficients and 1/2 a row for log gamma, uncorrelated.

    Args:
        features: The number of features; ``prepare`` appends the intercept's column.
        prior_shape: Shape of the prior of the weights' precision xi.
        prior_rate: Rate of that prior.
        intercept_sd: Standard deviation of the intercept's prior.
        noise_shape: Shape of the prior of the noise precision gamma.
        noise_rate: Rate of that prior.
        start: ``"zero"`` or ``"prior"``: where particles start.

    Returns:
        The model, with the blocks (coefficients, log xi, log gamma).

    Raises:
        ValueError: ``start`` is unknown.
    """
    prior = CoefficientPrior(features, 1, prior_shape, prior_rate, intercept_sd, start)

    def log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return weights @ gaussian_log_density(x @ blocks[0].T, y[:, None], blocks[2].T)

    def predict(blocks: Blocks, x: Array) -> Array:
        mean = x @ blocks[0].T
        return jnp.concatenate([mean, jnp.broadcast_to(blocks[2].T, mean.shape)], axis=1)

    def sample(key: Array, blocks: Blocks, x: Array) -> Array:
        mean = x @ blocks[0].T
        return mean + jnp.exp(-0.5 * blocks[2].T) * jax.random.normal(key, mean.shape, mean.dtype)

    def information(blocks: Blocks, weights: Array) -> Array:
        return weights[:, None] * jnp.exp(blocks[2].T)

    def diagonal_curvature(blocks: Blocks, x: Array, weights: Array, key: Array, samples: int) -> Blocks:
        of_noise = jnp.full_like(blocks[2], 0.5) * jnp.sum(weights)
        return diagonal_of(x, information(blocks, weights)), jnp.zeros_like(blocks[1]), of_noise

    def full_curvature(blocks: Blocks, x: Array, weights: Array) -> Array:
        return block_diagonal(matrix_of(x, information(blocks, weights)), jnp.zeros(()), 0.5 * jnp.sum(weights))

    return regression(
        prior,
        GammaParameter("log gamma", noise_shape, noise_rate),
        name="linear",
        task="regression",
        log_likelihood=log_likelihood,
        predict=predict,
        diagonal_curvature=diagonal_curvature,
        full_curvature=full_curvature,
        glm=Glm(lambda f, y, extra: gaussian_log_density(f[0], y, extra[0]), extra=2, concave=False),
        units=Units(powers=(0, -2)),
        likelihood="gaussian",
        sample=sample,
    )


LINEAR = ModelKind(
    name="linear",
    about="Bayesian linear regression with unknown noise, theta = [w, b, log xi, log gamma]",
    task="regression",
    settings=LinearSettings,
    build=build_with(linear_regression),
    traits=TRAITS._replace(moved=2),
)
