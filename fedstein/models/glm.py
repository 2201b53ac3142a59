"""Code that the regressions share: coefficients with their prior, a noise or dispersion parameter, initial particles.

The coefficients of a predictor are one block, the weights first and the intercept last; ``with_intercept`` appends the
column of ones that multiplies it. Their prior is

    w | xi ~ N(0, 1 / xi),   xi ~ Gamma(prior_shape, prior_rate),   b ~ N(0, intercept_sd^2).

With xi integrated out, a weight has a Student t prior with 2 prior_shape degrees of freedom and scale
sqrt(prior_rate / prior_shape); by default it is t_2(0, 1), weakly informative for standardised features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from fedstein.models.base import (
    Blocks,
    GaussianGiven,
    Model,
    ModelSettings,
    ModelTraits,
    check_start,
    gamma_draws,
    gamma_log_density,
    join,
)
from fedstein.settings import PositiveFloat

STARTS = ("zero", "prior")
NEAR = 0.1  # the standard deviation of a start at zero
TRAITS = ModelTraits(
    0.05, 1e-6, 0.05, "full", "log", "as_written", parameters=lambda features, classes: features + 1, moved=1
)
COUNTS = TRAITS._replace(target="count")


class GlmSettings(ModelSettings):
    """Settings that all regressions share."""

    prior_shape: PositiveFloat = Field(
        1.0, description="Shape a of the prior xi ~ Gamma(a, b) of the weights' precision."
    )
    prior_rate: PositiveFloat = Field(1.0, description="Rate b of that prior: the mean of xi is a / b.")
    intercept_sd: PositiveFloat = Field(5.0, description="Standard deviation of the intercept's Gaussian prior.")
    start: Literal["zero", "prior"] = Field(
        "zero", description="Where particles start: within about 0.1 of zero effects, or drawn from the prior."
    )


def build_with(function: Callable[..., Model], *, with_classes: bool = False) -> Callable[[int, int, Any], Model]:
    """Make the builder of a ``ModelKind`` from the function that users call.

    Args:
        function: Features (and classes), then the settings by name -> model.
        with_classes: Whether the function takes the number of classes too.

    Returns:
        Features, classes, settings -> model.
    """

    def build(features: int, classes: int, settings: Any) -> Model:
        sizes = (features, classes) if with_classes else (features,)
        return function(*sizes, **settings.model_dump(exclude={"kind"}))

    return build


class GammaParameter(NamedTuple):
    """A positive parameter beside the coefficients, g ~ Gamma(shape, rate); particles hold log g, named ``name``."""

    name: str
    shape: float
    rate: float


class CoefficientPrior:
    """The prior of the coefficients of ``predictors`` linear predictors, and of log xi."""

    def __init__(self, features: int, predictors: int, shape: float, rate: float, intercept_sd: float, start: str):
        check_start(start, STARTS)
        self.features, self.inputs, self.predictors = features, features + 1, predictors
        self.width = predictors * self.inputs
        self.shape, self.rate, self.intercept_sd, self.start = shape, rate, intercept_sd, start
        self.is_weight = np.tile(np.arange(self.inputs) < features, predictors)

    def precision(self, log_xi: Array) -> Array:
        """N x 1 -> N x width precisions of the coefficients."""
        return jnp.where(self.is_weight, jnp.exp(log_xi), self.intercept_sd**-2)

    def log_density(self, coefficients: Array, log_xi: Array) -> Array:
        """log p(w, b, log xi) at every particle, up to a constant."""
        gaussian = -0.5 * jnp.sum(self.precision(log_xi) * coefficients**2, axis=1)
        weights = float(self.is_weight.sum())
        return gaussian + 0.5 * weights * log_xi[:, 0] + gamma_log_density(log_xi[:, 0], self.shape, self.rate)

    def draw(self, key: Array, n: int) -> Blocks:
        """Initial coefficients and log xi."""
        key_xi, key_w = jax.random.split(key)
        log_xi = log_gamma_start(key_xi, n, self.shape, self.rate, self.start)
        noise = jax.random.normal(key_w, (n, self.width))
        return (NEAR * noise if self.start == "zero" else noise / jnp.sqrt(self.precision(log_xi))), log_xi


def regression(prior: CoefficientPrior, other: GammaParameter | None = None, **own: Any) -> Model:
    """A model with the blocks (coefficients, log xi) and, if there is one, the logarithm of another parameter.

    Args:
        prior: The prior of the coefficients and of xi.
        other: The parameter beside them.
        **own: What the model has of its own: its likelihood, predictions and curvature, by the names of ``Model``.

    Returns:
        The model.
    """

    def init(key: Array, n: int) -> Array:
        if other is None:
            return join(prior.draw(key, n))
        key_w, key_other = jax.random.split(key)
        return join((*prior.draw(key_w, n), log_gamma_start(key_other, n, other.shape, other.rate, prior.start)))

    def log_prior(blocks: Blocks) -> Array:
        of_coefficients = prior.log_density(blocks[0], blocks[1])
        if other is None:
            return of_coefficients
        return of_coefficients + gamma_log_density(blocks[2][:, 0], other.shape, other.rate)

    names = ("log xi",) if other is None else ("log xi", other.name)
    return Model(
        widths=(prior.width, *(1 for _ in names)),
        init=init,
        log_prior=log_prior,
        prepare=with_intercept,
        gaussian_given=GaussianGiven(0, lambda blocks: prior.precision(blocks[1])),
        parameter_names=coefficient_names(*names, classes=prior.predictors if prior.predictors > 1 else 0),
        features=prior.features,
        **own,
    )


def log_gamma_start(key: Array, n: int, shape: float, rate: float, start: str) -> Array:
    """N x 1 initial values of log g, g ~ Gamma(shape, rate): draws, or values near the log of its mean."""
    if start == "zero":
        return math.log(shape / rate) + NEAR * jax.random.normal(key, (n, 1))
    return jnp.log(jnp.maximum(gamma_draws(key, shape, n) / rate, 1e-6))


def with_intercept(x: np.ndarray) -> np.ndarray:
    """Append the column of ones."""
    return np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)


def coefficient_names(*others: str, classes: int = 0) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """Make the function that names the parameters of a regression.

    Args:
        *others: The names of the parameters after the coefficients.
        classes: The number of classes, if each has coefficients of its own.

    Returns:
        Names of the features -> names of the parameters; the intercept comes after the features' coefficients.
    """

    def names(features: tuple[str, ...]) -> tuple[str, ...]:
        one = (*features, "intercept")
        each = tuple(f"{name} [class {k}]" for k in range(classes) for name in one) if classes else one
        return (*each, *others)

    return names


def diagonal_of(x: Array, information: Array) -> Array:
    """Diagonal of sum_i information_i x_i x_i' for every particle: rows x N -> N x inputs."""
    return information.T @ (x * x)


def matrix_of(x: Array, information: Array) -> Array:
    """sum_i information_i x_i x_i', averaged over the particles: rows x N -> inputs x inputs."""
    return x.T @ (jnp.mean(information, axis=1)[:, None] * x)


def block_diagonal(coefficients: Array, *others: Array) -> Array:
    """The d x d matrix of a coefficient matrix followed by single parameters that are uncorrelated with all others."""
    width, extra = coefficients.shape[0], len(others)
    padded = jnp.pad(coefficients, ((0, extra), (0, extra)))
    for offset, value in enumerate(others):
        padded = padded.at[width + offset, width + offset].set(value)
    return padded
