"""NumPyro models in which every client has a latent variable u of its own, which stays with the client.

The function is that of one client: it samples u once, beside the variables that all clients share, and sees the rows of
that client alone. The client's likelihood of the shared theta is the marginal likelihood of all its rows together,

    log p_k(theta) = log integral prod_i p(y_i | x_i, theta, u) p(u | theta) du,

taken over the unconstrained value z of u by adaptive Gauss-Hermite quadrature around its mode. It is not a sum over
rows (``Model.whole_shard``). Predictions are for a client whose u is not known: averages over p(u | theta).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.models.base import Blocks, Model, log_mean_exp
from fedstein.models.numpyro_trace import NumpyroTrace, base_of
from fedstein.models.random_intercept import PREDICTIVE, QUADRATURE, normal_nodes

NEWTON_STEPS = 25
SHORTER = (
    1.0,
    0.5,
    0.25,
    0.125,
    0.03,
    0.0,
)  # shares of a Newton step of which the best is taken, so that none descends
DRAWS = 64  # draws of u for predictions, if its prior is not Gaussian; the same in every call


def local_model(trace: NumpyroTrace, features: int, init: Callable[[Array], Array]) -> Model:
    """The model of a function with a variable of the client's own.

    Args:
        trace: The function; its ``local`` names the variable.
        features: The number of features.
        init: Key -> one theta to start from.

    Returns:
        The model. ``client_effect`` gives mean and standard deviation of a client's own variable.
    """
    kind = trace.likelihood

    def marginal(theta: Array, x: Array, y: Array, weights: Array) -> Array:
        values, log_shares, _ = _at_nodes(trace, theta, x, y, weights)
        return jax.nn.logsumexp(values + log_shares)

    def log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return jax.vmap(marginal, (0, None, None, None))(blocks[0], x, y, weights)

    def client_effect(blocks: Blocks, x: Array, y: Array, weights: Array) -> tuple[Array, Array]:
        def one(theta: Array) -> tuple[Array, Array]:
            values, log_shares, z = _at_nodes(trace, theta, x, y, weights)
            shares = jax.nn.softmax(values + log_shares)
            effects = jax.vmap(lambda at: trace.local_value(theta, at, x, y))(z)
            mean = shares @ effects
            return mean, jnp.sqrt(shares @ (effects - mean) ** 2)

        return jax.vmap(one)(blocks[0])

    def densities(theta: Array, x: Array, y: Array) -> Array:
        """log p(y_i | x_i, theta) of each row, for a client whose u is not known."""
        z, log_shares = _prior_places(trace, theta, x, y)
        each = jax.vmap(lambda at: trace.observed(theta, x, y, at).log_prob(y))(z)  # places x rows
        return jax.nn.logsumexp(each + log_shares[:, None], axis=0)

    def predict(blocks: Blocks, x: Array) -> Array:
        y = jnp.zeros(x.shape[0], jnp.int32 if kind.classes else x.dtype)
        if kind.classes:

            def classes(theta: Array) -> Array:
                return jnp.stack([densities(theta, x, jnp.full_like(y, c)) for c in range(kind.classes)], axis=1)

            return log_mean_exp(jax.vmap(classes)(blocks[0]), axis=0)

        def moments(theta: Array) -> tuple[Array, Array]:
            z, log_shares = _prior_places(trace, theta, x, y)
            shares = jnp.exp(log_shares)

            def at_place(at: Array) -> tuple[Array, Array]:
                fn = trace.observed(theta, x, y, at)
                return jnp.broadcast_to(fn.mean, x.shape[:1]), jnp.broadcast_to(fn.variance, x.shape[:1])

            means, variances = jax.vmap(at_place)(z)
            mean = shares @ means
            return mean, shares @ (variances + (means - mean) ** 2)

        mean, variance = jax.vmap(moments)(blocks[0])
        return jnp.concatenate([mean.T, -jnp.log(variance).T], axis=1)

    def sample(key: Array, blocks: Blocks, x: Array) -> Array:
        y = jnp.zeros(x.shape[0], x.dtype)

        def one(key: Array, theta: Array) -> Array:
            for_client, for_rows = jax.random.split(key)
            z = trace.unconstrained(trace.local_prior(theta, x, y), lambda fn: fn.sample(for_client))
            return trace.observed(theta, x, y, z).sample(for_rows).astype(x.dtype)

        return jax.vmap(one)(jax.random.split(key, blocks[0].shape[0]), blocks[0]).T

    return Model(
        name=trace.name,
        task="classification" if kind.classes else "regression",
        widths=(trace.dim,),
        init=lambda key, n: jax.vmap(init)(jax.random.split(key, n)),
        log_prior=lambda blocks: jax.vmap(trace.log_prior)(blocks[0]),
        log_likelihood=log_likelihood,
        predict=predict,
        classes=kind.classes,
        features=features,
        likelihood="other",
        sample=None if kind.classes else sample,
        log_density=None
        if kind.classes
        else lambda blocks, x, y: jax.vmap(densities, (0, None, None), 1)(blocks[0], x, y),
        target="count" if kind.counts else "real",
        whole_shard=True,
        client_effect=client_effect,
        parameter_names=lambda features: trace.names,
        constrain=trace.constrain,
    )


def _at_nodes(trace: NumpyroTrace, theta: Array, x: Array, y: Array, weights: Array) -> tuple[Array, Array, Array]:
    """The log of the integrand at the nodes, the logarithms of the nodes' shares, and the nodes."""

    def joint(theta: Array, z: Array) -> Array:
        fn, own = trace.joint(theta, z, x, y)
        return weights @ fn.log_prob(y) + own

    # The integral does not depend on where the nodes are, so its gradient does not either.
    fixed = jax.lax.stop_gradient(theta)
    start = trace.unconstrained(trace.local_prior(fixed, x, y), lambda fn: fn.mean)
    centre, scale = jax.lax.stop_gradient(_mode(lambda z: joint(fixed, z), jnp.nan_to_num(start, posinf=0, neginf=0)))
    nodes, shares = normal_nodes(QUADRATURE)
    z = centre + scale * nodes
    log_shares = shares + 0.5 * nodes**2 + 0.5 * math.log(2 * math.pi) + jnp.log(scale)
    return jax.vmap(lambda at: joint(theta, at))(z), log_shares, z


def _mode(log_density: Callable[[Array], Array], start: Array) -> tuple[Array, Array]:
    """Mode and width of a density of one number, by Newton steps that never descend."""
    slope, bend = jax.grad(log_density), jax.grad(jax.grad(log_density))
    shares = jnp.asarray(SHORTER, start.dtype)

    def step(_: int, z: Array) -> Array:
        each = z + shares * slope(z) / jnp.maximum(jnp.abs(bend(z)), 1e-6)
        values = jax.vmap(log_density)(each)
        return each[jnp.argmax(jnp.where(jnp.isnan(values), -jnp.inf, values))]

    z = jax.lax.fori_loop(0, NEWTON_STEPS, step, start)
    return z, jnp.maximum(-bend(z), 1e-6) ** -0.5


def _prior_places(trace: NumpyroTrace, theta: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Unconstrained values of u and the logarithms of their shares, which stand for p(u | theta)."""
    from numpyro import distributions as dist

    fn = trace.local_prior(theta, x, y)
    base: Any = base_of(fn)
    if type(base) is dist.Normal:
        nodes, log_shares = normal_nodes(PREDICTIVE)
        return base.loc + base.scale * nodes, log_shares
    drawn = fn.sample(jax.random.key(0), (DRAWS,))
    return trace.unconstrained(fn, lambda _: drawn), jnp.full(DRAWS, -math.log(DRAWS), theta.dtype)
