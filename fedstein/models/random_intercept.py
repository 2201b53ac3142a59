"""Regressions with a random intercept per client: theta = [w, b, log xi, log tau (, log gamma)].

Client k has an effect u_k of its own. It stays with the client; the federation learns the rest and the scale tau:

    u_k ~ N(0, tau^2),   y_i | u_k ~ Bernoulli(sigmoid(w . x_i + b + u_k))   or   N(w . x_i + b + u_k, 1 / gamma),
    tau ~ half-normal(effect_sd),   w and b as in ``models.glm``.

The client's likelihood of theta is the marginal likelihood of all its rows together,

    log p_k(theta) = log integral prod_i p(y_i | x_i, u) N(u; 0, tau^2) du,

which is not a sum over rows: ``Model.whole_shard`` says so. Row weights multiply the log-densities under the integral,
so a minibatch with weights n / B gives an estimate with a small bias, and padding of weight zero gives none.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from fedstein.models.base import Blocks, GaussianGiven, Model, ModelKind, Units, gamma_log_density, join, log_mean_exp
from fedstein.models.glm import (
    TRAITS,
    CoefficientPrior,
    GlmSettings,
    coefficient_names,
    log_gamma_start,
    with_intercept,
)
from fedstein.settings import PositiveFloat

NEWTON_STEPS = 30  # safeguarded by a bracket, so that they end at the mode from anywhere
QUADRATURE = 15  # Gauss-Hermite nodes around the mode of one client's effect
PREDICTIVE = 31  # nodes over the effects of clients in general, for which there is no mode to centre the nodes at


class RandomInterceptSettings(GlmSettings):
    """Settings that both regressions with a random intercept share."""

    effect_sd: PositiveFloat = Field(
        1.0, description="Scale of the half-normal prior of tau, the standard deviation of the clients' intercepts."
    )


class RandomInterceptLogisticSettings(RandomInterceptSettings):
    """Settings of logistic regression with a random intercept per client."""

    kind: str = "random_intercept_logistic"


class RandomInterceptLinearSettings(RandomInterceptSettings):
    """Settings of linear regression with a random intercept per client."""

    kind: str = "random_intercept_linear"
    intercept_sd: PositiveFloat = Field(10.0, description="Standard deviation of the intercept's Gaussian prior.")
    noise_shape: PositiveFloat = Field(1.0, description="Shape of the prior Gamma(shape, rate) of the noise precision.")
    noise_rate: PositiveFloat = Field(0.1, description="Rate of that prior.")


def random_intercept_logistic(
    features: int,
    *,
    prior_shape: float = 1.0,
    prior_rate: float = 1.0,
    intercept_sd: float = 5.0,
    effect_sd: float = 1.0,
    start: str = "zero",
) -> Model:
    """Labels 0 and 1; the integral over a client's effect is taken by adaptive Gauss-Hermite quadrature.

    Args:
        features: The number of features; ``prepare`` appends the intercept's column.
        prior_shape: Shape of the prior of the weights' precision xi.
        prior_rate: Rate of that prior.
        intercept_sd: Standard deviation of the common intercept's prior.
        effect_sd: Scale of the half-normal prior of tau.
        start: ``"zero"`` or ``"prior"``: where particles start.

    Returns:
        The model, with the blocks (coefficients, log xi, log tau). ``predict`` is for a client whose effect is unknown;
        ``client_effect`` gives a client's own.

    Raises:
        ValueError: ``start`` is unknown.
    """
    prior = CoefficientPrior(features, 1, prior_shape, prior_rate, intercept_sd, start)

    def log_density(logits: Array, y: Array) -> Array:
        return jax.nn.log_sigmoid((2 * y - 1).astype(logits.dtype)[:, None] * logits)

    def mode(logits: Array, tau: Array, y: Array, weights: Array) -> tuple[Array, Array]:
        """Mode and standard deviation of z = u / tau given the rows, N each: the log-density of z is concave."""

        def slope(z: Array) -> tuple[Array, Array]:
            p = jax.nn.sigmoid(logits + tau * z)
            return tau * (weights @ (y.astype(p.dtype)[:, None] - p)) - z, 1 + tau**2 * (weights @ (p * (1 - p)))

        def step(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            low, z, high = carry
            gradient, curvature = slope(z)
            low, high = jnp.where(gradient > 0, z, low), jnp.where(gradient > 0, high, z)
            newton = z + gradient / curvature
            return low, jnp.where((newton > low) & (newton < high), newton, 0.5 * (low + high)), high

        bound = tau * jnp.sum(weights) + 1  # |slope - prior's slope| never exceeds tau sum_i w_i
        _, z, _ = jax.lax.fori_loop(0, NEWTON_STEPS, step, (-bound, jnp.zeros_like(tau), bound))
        return z, slope(z)[1] ** -0.5

    def log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        logits, tau = x @ blocks[0].T, jnp.exp(blocks[2][:, 0])
        # The integral does not depend on where the nodes are, so its gradient does not either.
        centre, scale = jax.lax.stop_gradient(mode(logits, tau, y, weights))
        nodes, log_shares = normal_nodes(QUADRATURE)
        z = centre + scale * nodes[:, None]  # nodes x N
        rows = jax.vmap(lambda at: weights @ log_density(logits + tau * at, y))(z)
        return jnp.log(scale) + jax.nn.logsumexp(rows - 0.5 * z**2 + (log_shares + 0.5 * nodes**2)[:, None], axis=0)

    def predict(blocks: Blocks, x: Array) -> Array:
        logits, tau = x @ blocks[0].T, jnp.exp(blocks[2][:, 0])
        places, shares = normal_nodes(PREDICTIVE)
        each = logits + tau * places[:, None, None]  # nodes x rows x N

        def averaged(values: Array) -> Array:
            return log_mean_exp(jax.nn.logsumexp(values + shares[:, None, None], axis=0), axis=1)

        return jnp.stack([averaged(jax.nn.log_sigmoid(-each)), averaged(jax.nn.log_sigmoid(each))], axis=1)

    def client_effect(blocks: Blocks, x: Array, y: Array, weights: Array) -> tuple[Array, Array]:
        tau = jnp.exp(blocks[2][:, 0])
        centre, scale = mode(x @ blocks[0].T, tau, y, weights)
        return tau * centre, tau * scale

    def init(key: Array, n: int) -> Array:
        key_w, key_tau = jax.random.split(key)
        return join((*prior.draw(key_w, n), log_scale_start(key_tau, n, effect_sd, start)))

    return Model(
        name="random_intercept_logistic",
        task="classification",
        widths=(prior.width, 1, 1),
        init=init,
        log_prior=lambda blocks: (
            prior.log_density(blocks[0], blocks[1]) + half_normal_log_density(blocks[2][:, 0], effect_sd)
        ),
        log_likelihood=log_likelihood,
        predict=predict,
        prepare=with_intercept,
        gaussian_given=GaussianGiven(0, lambda blocks: prior.precision(blocks[1])),
        parameter_names=coefficient_names("log xi", "log tau"),
        units=Units(),
        features=features,
        classes=2,
        likelihood="other",
        whole_shard=True,
        client_effect=client_effect,
    )


def random_intercept_linear(
    features: int,
    *,
    prior_shape: float = 1.0,
    prior_rate: float = 1.0,
    intercept_sd: float = 10.0,
    effect_sd: float = 1.0,
    noise_shape: float = 1.0,
    noise_rate: float = 0.1,
    start: str = "zero",
) -> Model:
    """Gaussian outcomes; the integral over a client's effect is known. With r_i = y_i - w . x_i - b and n = sum_i w_i,

        log p_k = sum_i w_i log N(r_i; 0, 1 / gamma) - log(1 + n gamma tau^2) / 2
                  + gamma^2 tau^2 (sum_i w_i r_i)^2 / (2 (1 + n gamma tau^2)).

    Args:
        features: The number of features; ``prepare`` appends the intercept's column.
        prior_shape: Shape of the prior of the weights' precision xi.
        prior_rate: Rate of that prior.
        intercept_sd: Standard deviation of the common intercept's prior.
        effect_sd: Scale of the half-normal prior of tau.
        noise_shape: Shape of the prior of the noise precision gamma.
        noise_rate: Rate of that prior.
        start: ``"zero"`` or ``"prior"``: where particles start.

    Returns:
        The model, with the blocks (coefficients, log xi, log tau, log gamma). ``predict`` is for a client whose effect
        is unknown: its variance is 1 / gamma + tau^2.

    Raises:
        ValueError: ``start`` is unknown.
    """
    prior = CoefficientPrior(features, 1, prior_shape, prior_rate, intercept_sd, start)

    def pulled(blocks: Blocks, x: Array, y: Array, weights: Array) -> tuple[Array, Array, Array]:
        """Residuals, rows x N; gamma times their sum; and 1 / Var(u | rows) times tau^2."""
        residuals = y[:, None] - x @ blocks[0].T
        gamma = jnp.exp(blocks[3][:, 0])
        shrinkage = 1 + jnp.sum(weights) * gamma * jnp.exp(2 * blocks[2][:, 0])
        return residuals, gamma * (weights @ residuals), shrinkage

    def log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        residuals, pull, shrinkage = pulled(blocks, x, y, weights)
        log_gamma, variance = blocks[3][:, 0], jnp.exp(2 * blocks[2][:, 0])
        rows = 0.5 * (log_gamma - math.log(2 * math.pi) - jnp.exp(log_gamma) * residuals**2)
        return weights @ rows - 0.5 * jnp.log(shrinkage) + 0.5 * variance * pull**2 / shrinkage

    def client_effect(blocks: Blocks, x: Array, y: Array, weights: Array) -> tuple[Array, Array]:
        _, pull, shrinkage = pulled(blocks, x, y, weights)
        variance = jnp.exp(2 * blocks[2][:, 0]) / shrinkage
        return variance * pull, jnp.sqrt(variance)

    def predict(blocks: Blocks, x: Array) -> Array:
        mean = x @ blocks[0].T
        log_variance = jnp.logaddexp(-blocks[3].T, 2 * blocks[2].T)
        return jnp.concatenate([mean, jnp.broadcast_to(-log_variance, mean.shape)], axis=1)

    def init(key: Array, n: int) -> Array:
        key_w, key_tau, key_gamma = jax.random.split(key, 3)
        scales = log_scale_start(key_tau, n, effect_sd, start)
        return join((*prior.draw(key_w, n), scales, log_gamma_start(key_gamma, n, noise_shape, noise_rate, start)))

    def log_prior(blocks: Blocks) -> Array:
        noise = gamma_log_density(blocks[3][:, 0], noise_shape, noise_rate)
        return prior.log_density(blocks[0], blocks[1]) + half_normal_log_density(blocks[2][:, 0], effect_sd) + noise

    return Model(
        name="random_intercept_linear",
        task="regression",
        widths=(prior.width, 1, 1, 1),
        init=init,
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        predict=predict,
        prepare=with_intercept,
        gaussian_given=GaussianGiven(0, lambda blocks: prior.precision(blocks[1])),
        parameter_names=coefficient_names("log xi", "log tau", "log gamma"),
        units=Units(powers=(0, 1, -2)),
        features=features,
        likelihood="other",
        whole_shard=True,
        client_effect=client_effect,
    )


def normal_nodes(count: int) -> tuple[Array, Array]:
    """Gauss-Hermite nodes of a standard normal, with the logarithms of their shares."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(count)
    floating = jnp.result_type(float)
    return jnp.asarray(nodes, floating), jnp.asarray(np.log(shares / shares.sum()), floating)


def half_normal_log_density(log_value: Array, scale: float) -> Array:
    """Log-density of log(t), t ~ half-normal(scale), up to a constant (Jacobian included)."""
    return log_value - 0.5 * jnp.exp(2 * log_value) / scale**2


def log_scale_start(key: Array, n: int, scale: float, start: str) -> Array:
    """N x 1 initial values of log t, t ~ half-normal(scale): draws, or values near log(scale / 2)."""
    noise = jax.random.normal(key, (n, 1))
    if start == "zero":
        return math.log(scale / 2) + 0.1 * noise
    return jnp.log(jnp.maximum(scale * jnp.abs(noise), 1e-3 * scale))


RANDOM_LOGISTIC = ModelKind(
    name="random_intercept_logistic",
    about="logistic regression with a random intercept per client, theta = [w, b, log xi, log tau]",
    task="classification",
    settings=RandomInterceptLogisticSettings,
    build=lambda features, classes, settings: random_intercept_logistic(
        features, **settings.model_dump(exclude={"kind"})
    ),
    traits=TRAITS._replace(whole_shard=True, moved=2),
    classes=2,
)
RANDOM_LINEAR = ModelKind(
    name="random_intercept_linear",
    about="linear regression with a random intercept per client, theta = [w, b, log xi, log tau, log gamma]",
    task="regression",
    settings=RandomInterceptLinearSettings,
    build=lambda features, classes, settings: random_intercept_linear(
        features, **settings.model_dump(exclude={"kind"})
    ),
    traits=TRAITS._replace(whole_shard=True, moved=3),
)
