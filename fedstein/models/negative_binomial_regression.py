"""Bayesian negative binomial regression with a log link: theta = [w, b, log xi, log alpha].

    E[y] = mu = exp(w . x + b),   Var[y] = mu + alpha mu^2,   alpha ~ Gamma(dispersion_shape, dispersion_rate)

alpha is the dispersion (NB2); as it goes to 0 the model becomes Poisson regression. w and b are as in ``models.glm``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln
from pydantic import Field

from fedstein.models.base import Blocks, Glm, Model, ModelKind, Units
from fedstein.models.glm import (
    COUNTS,
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

EXACT = 64  # counts whose probabilities are summed one by one in the information about the dispersion
SERIES = 10.0  # from here on, Stirling's series has more digits than float64


class NegativeBinomialSettings(GlmSettings):
    """Settings of negative binomial regression."""

    kind: str = "negative_binomial"
    dispersion_shape: PositiveFloat = Field(1.0, description="Shape of the prior Gamma(shape, rate) of the dispersion.")
    dispersion_rate: PositiveFloat = Field(1.0, description="Rate of that prior.")


def stirling_remainder(z: Array) -> Array:
    """log Gamma(z) - ((z - 1/2) log z - z), without the cancellation of the three terms for large z."""
    large, small = jnp.maximum(z, SERIES), jnp.minimum(z, SERIES)
    inverse = 1 / large
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))))
    direct = gammaln(small) - ((small - 0.5) * jnp.log(small) - small)
    return jnp.where(z > SERIES, series + 0.5 * jnp.log(2 * jnp.pi), direct)


def negative_binomial_log_density(log_mean: Array, y: Array, log_dispersion: Array) -> Array:
    """log NB(y; mu, alpha), accurate in float32 down to small alpha.

    With r = 1 / alpha it is log Gamma(y + r) - log Gamma(r) - log y! - y log r + y log mu - (y + r) log(1 + alpha mu);
    the first two terms and y log r are combined by Stirling's formula, as they nearly cancel for large r.
    """
    size = jnp.exp(-log_dispersion)
    rising = (size + y - 0.5) * jnp.log1p(y / size) - y + stirling_remainder(size + y) - stirling_remainder(size)
    return rising - gammaln(y + 1.0) + y * log_mean - (size + y) * jax.nn.softplus(log_mean + log_dispersion)


def dispersion_information(log_mean: Array, log_dispersion: Array) -> Array:
    """Fisher information of one row about log alpha.

    With r = 1 / alpha, and P the probabilities of the model's own counts,

        r^2 ( sum_j P(y > j) / (r + j)^2 - mu / (r (r + mu)) ).

    The first 64 terms of the sum are added one by one. The rest, E[1 / (r + 63.5) - 1 / (r + y - 0.5); y >= 64] up to
    the curvature of 1 / (r + j)^2 within a unit, follows from the mean and variance of the counts from 64 on.
    """
    mean, size = jnp.exp(log_mean), jnp.exp(-log_dispersion)
    odds = mean / (mean + size)

    def step(j: int, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        chance, above, first, second, total = carry  # P(y = j), P(y >= j), E[y; y >= j], E[y^2; y >= j]
        above, first, second = above - chance, first - j * chance, second - j * j * chance
        return chance * (j + size) / (j + 1) * odds, above, first, second, total + above / (size + j) ** 2

    zero = jnp.exp(-size * jnp.log1p(mean / size))
    start = (zero, jnp.ones_like(zero), mean, mean + mean**2 * (1 + 1 / size), jnp.zeros_like(zero))
    _, above, first, second, total = jax.lax.fori_loop(0, EXACT, step, start)
    share = jnp.maximum(above, 1e-6)
    middle = jnp.maximum(first / share, EXACT)
    spread = jnp.maximum(second / share - middle**2, 0)
    shifted = size + middle - 0.5
    beyond = 1 / (size + EXACT - 0.5) - (1 + spread / shifted**2) / shifted
    total = total + jnp.where(above > 1e-6, above * jnp.maximum(beyond, 0), 0)
    return jnp.maximum(size**2 * total - size * odds, 0)


def negative_binomial_regression(
    features: int,
    *,
    prior_shape: float = 1.0,
    prior_rate: float = 1.0,
    intercept_sd: float = 5.0,
    dispersion_shape: float = 1.0,
    dispersion_rate: float = 1.0,
    start: str = "zero",
) -> Model:
    """Overdispersed counts with a log-linear mean.

    The Fisher information of a row is mu / (1 + alpha mu) x x' for the coefficients and ``dispersion_information`` for
    log alpha; they are uncorrelated.

    Args:
        features: The number of features; ``prepare`` appends the intercept's column.
        prior_shape: Shape of the prior of the weights' precision xi.
        prior_rate: Rate of that prior.
        intercept_sd: Standard deviation of the intercept's prior.
        dispersion_shape: Shape of the prior of the dispersion alpha.
        dispersion_rate: Rate of that prior.
        start: ``"zero"`` or ``"prior"``: where particles start.

    Returns:
        The model, with the blocks (coefficients, log xi, log alpha). ``predict`` gives the mean and minus the log of
        the variance; ``log_density`` gives the log-probabilities of counts.

    Raises:
        ValueError: ``start`` is unknown.
    """
    prior = CoefficientPrior(features, 1, prior_shape, prior_rate, intercept_sd, start)

    def log_density(blocks: Blocks, x: Array, y: Array) -> Array:
        return negative_binomial_log_density(x @ blocks[0].T, y.astype(x.dtype)[:, None], blocks[2].T)

    def log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return weights @ log_density(blocks, x, y)

    def predict(blocks: Blocks, x: Array) -> Array:
        log_mean = x @ blocks[0].T
        return jnp.concatenate([jnp.exp(log_mean), -log_mean - jax.nn.softplus(log_mean + blocks[2].T)], axis=1)

    def sample(key: Array, blocks: Blocks, x: Array) -> Array:
        key_rate, key_count = jax.random.split(key)
        log_mean = x @ blocks[0].T
        size = jnp.broadcast_to(jnp.exp(-blocks[2].T), log_mean.shape)
        rate = jnp.exp(log_mean) * jax.random.gamma(key_rate, size) / size
        return jax.random.poisson(key_count, rate).astype(x.dtype)

    def information(blocks: Blocks, x: Array, weights: Array) -> Array:
        log_mean = x @ blocks[0].T
        return weights[:, None] * jnp.exp(log_mean - jax.nn.softplus(log_mean + blocks[2].T))

    def of_dispersion(blocks: Blocks, x: Array, weights: Array) -> Array:
        return weights @ dispersion_information(x @ blocks[0].T, blocks[2].T)

    def diagonal_curvature(blocks: Blocks, x: Array, weights: Array, key: Array, samples: int) -> Blocks:
        coefficients = diagonal_of(x, information(blocks, x, weights))
        return coefficients, jnp.zeros_like(blocks[1]), of_dispersion(blocks, x, weights)[:, None]

    def full_curvature(blocks: Blocks, x: Array, weights: Array) -> Array:
        coefficients = matrix_of(x, information(blocks, x, weights))
        return block_diagonal(coefficients, jnp.zeros(()), jnp.mean(of_dispersion(blocks, x, weights)))

    return regression(
        prior,
        GammaParameter("log alpha", dispersion_shape, dispersion_rate),
        name="negative_binomial",
        task="regression",
        log_likelihood=log_likelihood,
        predict=predict,
        diagonal_curvature=diagonal_curvature,
        full_curvature=full_curvature,
        glm=Glm(lambda f, y, extra: negative_binomial_log_density(f[0], y, extra[0]), extra=2, concave=False),
        units=Units(),
        likelihood="other",
        sample=sample,
        log_density=log_density,
        target="count",
    )


NEGATIVE_BINOMIAL = ModelKind(
    name="negative_binomial",
    about="Bayesian negative binomial regression of counts, theta = [w, b, log xi, log alpha]",
    task="regression",
    settings=NegativeBinomialSettings,
    build=build_with(negative_binomial_regression),
    traits=COUNTS._replace(moved=2),
)
