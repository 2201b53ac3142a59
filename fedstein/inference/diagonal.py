"""Diagonal Gaussians in natural parameters, and the prior as such a Gaussian. Mean-field methods share this code.

A factor is exp(eta . theta - theta' diag(precision) theta / 2). The posterior of a mean-field method is the product
of the prior's factor and one factor of each client:

    q = N(mean, 1 / precision),   precision = prior + sum_k lambda_k,   mean = (prior eta + sum_k eta_k) / precision.

A Gaussian prior of independent parameters is such a factor exactly. Any other prior is represented by the factor that
has its slope and its secant curvature on average over q (Rademacher directions), renewed whenever q has moved:

    lambda_0 = -E[(g(m + s e) - g(m - s e)) e / 2s],   eta_0 = E[(g(m + s e) + g(m - s e)) / 2] + lambda_0 m,

g the score of p0, s the sds of q, e random signs. For a prior whose Hessian is diagonal and constant this is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.inference.methods.base import Accepted
from fedstein.inference.sites.base import Arrays, Site, State
from fedstein.models.base import Blocks, Model, cut, join

SIGNS = 16  # random directions for a prior that is not Gaussian
LEAST = 0.01  # the precision of q is at least this share of the prior's
FACTOR = ("eta", "precision")  # the arrays of a client's factor


class Factor(NamedTuple):
    """exp(eta . theta - theta' diag(precision) theta / 2), on the host in float64."""

    eta: np.ndarray
    precision: np.ndarray


def prior_factor(model: Model, mean: np.ndarray, sd: np.ndarray) -> Factor:
    """The prior as a factor.

    Args:
        model: The model.
        mean: The mean of q, d.
        sd: Its standard deviations, d.

    Returns:
        The factor; its precisions are above zero.
    """
    if model.linear_prior_score is not None:
        return Factor(np.zeros(model.dim), np.full(model.dim, -float(model.linear_prior_score)))
    dtype = jnp.result_type(float)
    eta, precision = prior_secant(model, jnp.asarray(mean, dtype), jnp.asarray(sd, dtype))
    return Factor(np.asarray(eta, np.float64), np.asarray(precision, np.float64))


@partial(jax.jit, static_argnums=0)
def prior_secant(model: Model, mean: Array, sd: Array) -> tuple[Array, Array]:
    """``prior_factor`` for compiled code: eta and precision of the prior's factor."""
    if model.linear_prior_score is not None:
        return jnp.zeros_like(mean), jnp.full_like(mean, -model.linear_prior_score)
    sd = jnp.maximum(sd, 1e-3)
    signs = jax.random.rademacher(jax.random.key(0), (SIGNS, mean.shape[0]), mean.dtype)
    up, down = (join(model.prior_score(model.split(mean + direction * sd * signs))) for direction in (1, -1))
    precision = jnp.maximum(-jnp.mean((up - down) * signs, axis=0) / (2 * sd), 1e-3)
    return jnp.mean(up + down, axis=0) / 2 + precision * mean, precision


def first_state(model: Model, key: Array, sd: float) -> Arrays:
    """The server's state before round 1: no client's factor, the prior's, and the weights that training starts from.

    Args:
        model: The model.
        key: The key of the run; it also decides the draws of q that predictions use.
        sd: The standard deviation of the start.

    Returns:
        ``eta`` and ``precision`` (sums over clients), ``prior_eta`` and ``prior_precision``, ``origin`` (the start),
        ``trained`` (whether anybody has) and ``key``.
    """
    origin = model.init(key, 1)[0]
    prior = prior_factor(model, np.asarray(origin, np.float64), np.full(model.dim, sd))
    zeros = np.zeros(model.dim)
    return {
        "eta": zeros,
        "precision": zeros,
        "prior_eta": prior.eta,
        "prior_precision": prior.precision,
        "origin": origin,
        "trained": np.zeros((), np.float32),
        "key": np.asarray(jax.random.key_data(jax.random.fold_in(key, 1))),
    }


def q_of(server: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision of q; the precision is at least a hundredth of the prior's."""
    precision = np.maximum(server["prior_precision"] + server["precision"], LEAST * server["prior_precision"])
    return (server["prior_eta"] + server["eta"]) / precision, precision


def assigned(server: Arrays) -> Arrays:
    """Return the input of training: mean and precision of q, and whether any client has trained yet."""
    dtype = server["origin"].dtype
    mean, precision = q_of(server)
    return {
        "mean": jnp.asarray(mean, dtype),
        "precision": jnp.asarray(precision, dtype),
        "trained": jnp.asarray(server["trained"], dtype),
    }


def no_factor(server: Arrays) -> State:
    """The state of a client that never trained: its factor is 1. ``origin`` is where a first training starts."""
    zeros = jnp.zeros_like(server["origin"])
    return {"eta": zeros, "precision": zeros, "origin": server["origin"]}


def start_of(received: Mapping[str, Any], state: Mapping[str, Any], sd: float) -> tuple[Array, Array]:
    """Where local training starts: mean and precision of q, or the weights of the start while nobody has trained."""
    fresh = received["trained"] == 0
    mean = jnp.where(fresh, state["origin"], received["mean"])
    return mean, jnp.where(fresh, 1 / sd**2, received["precision"])


def absorb(model: Model, server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays]) -> Arrays:
    """The server's state with new factors of some clients in place of their old ones, and the prior's renewed.

    Args:
        model: The model.
        server: The server's state.
        accepted: The factors as they were.
        updates: The new ones.

    Returns:
        The new state.
    """
    sums = {name: np.array(server[name], np.float64) for name in FACTOR}
    for client in sorted(updates):
        old = accepted.get(client)
        for name in FACTOR:
            sums[name] += np.asarray(updates[client][name], np.float64)
            if old is not None:
                sums[name] -= np.asarray(old[name], np.float64)
    moved = {**server, **sums, "trained": np.ones((), np.float32)}
    if model.linear_prior_score is None:
        mean, precision = q_of(moved)
        prior = prior_factor(model, mean, 1 / np.sqrt(precision))
        moved = {**moved, "prior_eta": prior.eta, "prior_precision": prior.precision}
    return moved


def draws_of(server: Arrays, count: int, mean: Any, precision: Any) -> Array:
    """Draws of a diagonal Gaussian, count x d; the same random numbers in every round of a run."""
    key = jax.random.wrap_key_data(jnp.asarray(server["key"]))
    dtype = server["origin"].dtype
    noise = np.asarray(jax.random.normal(key, (count, len(mean)), dtype), np.float64)
    return jnp.asarray(np.asarray(mean) + noise / np.sqrt(precision), dtype)


def q_draws(server: Arrays, count: int, sd: float) -> Array:
    """Draws of q to predict with; while nobody has trained, draws around the start."""
    if not server["trained"]:
        origin = np.asarray(server["origin"], np.float64)
        return draws_of(server, count, origin, np.full(len(origin), 1 / sd**2))
    return draws_of(server, count, *q_of(server))


def with_cavity(model: Model, site: Site) -> Site:
    """Give the site ``none`` the scores of q and of a client's own factor, so that reports see the true cavity.

    Args:
        model: The model.
        site: The site ``none``.

    Returns:
        A site whose ``common_score`` is the score of q, from ``q_mean`` and ``q_precision`` of the broadcast, and whose
        ``own_score`` takes the client's factor out of it.
    """

    def common_score(received: Arrays, blocks: Blocks, offset: Blocks) -> Blocks:
        return cut(received["q_precision"] * (received["q_mean"] - join(blocks)), model.widths)

    def own_score(blocks: Blocks, offset: Blocks, origin: Blocks, state: State) -> Blocks:
        return cut(state["precision"] * join(blocks) - state["eta"], model.widths)

    return site._replace(common_score=common_score, own_score=own_score)


def broadcast_of(server: Arrays, particles: Array, tilted: bool) -> Arrays:
    """Return the input of reports: draws of q, and q itself if candidates report on their tilted targets."""
    found = {"particles": particles}
    if tilted:
        dtype, (mean, precision) = server["origin"].dtype, q_of(server)
        found |= {"q_mean": jnp.asarray(mean, dtype), "q_precision": jnp.asarray(precision, dtype)}
    return found
