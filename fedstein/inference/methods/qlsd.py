"""QLSD (Vono et al. 2022): Langevin dynamics at the server with quantised gradients from the clients.

A client computes H_k, an estimate of grad U_k = -grad log p_k - (1 / K) grad log p0 at the chain, and sends the
quantised difference from what both sides remember, g_k = C(H_k - eta_k). With A the clients of the round,

    theta <- theta - gamma (K / |A|) sum_{k in A} (eta_k + g_k) + sqrt(2 gamma) Z,     eta_k <- eta_k + a g_k.

C is stochastic rounding to s levels of the norm (QSGD): a number travels as one byte. a = 1 / (1 + min(w, w^2)) with
w = sqrt(d) / s. H_k is the mean over L batches. Predictions use the latest ``particles`` states of the chain, one a
round.

Reference: Vono, Plassier, Durmus, Dieuleveut and Moulines, "QLSD: Quantised Langevin Stochastic Dynamics for Bayesian
Federated Learning", AISTATS 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from fedstein.inference.langevin import ChainSettings, first_chains, next_noise, with_chain
from fedstein.inference.local_vi import likelihood_score
from fedstein.inference.methods.base import Accepted, Method, MethodKind, Training
from fedstein.inference.sites.base import Arrays, Site, State
from fedstein.inference.target import TargetSpec
from fedstein.models.base import Model, join
from fedstein.settings import Positive
from fedstein.stein import KERNELS

# What the client got -> the estimate of grad U_k without the prior, C x d, and what the client keeps for it.
Estimate = Callable[[Training], tuple[Array, State]]


class QlsdSettings(ChainSettings):
    """Settings of QLSD."""

    kind: str = "qlsd"
    local_steps: Positive = Field(1, description="L, the batches whose gradients are averaged; a chain makes one step.")
    levels: int = Field(64, ge=1, le=127, description="s, the levels that numbers are rounded to.")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="How the step size changes over the rounds; samplers keep it."
    )


def qlsd(model: Model, site: Site, settings: QlsdSettings) -> Method:
    """Build QLSD.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method.
    """

    def estimate(given: Training) -> tuple[Array, State]:
        return -mean_score(model, settings, given, given.received["chain"]), {}

    def row_gradients(rows: int) -> dict[str, int]:
        return {"train": settings.local_steps * min(rows, settings.batch_size) * settings.chains, "site": 0}

    return quantised_langevin(model, site, settings, estimate, lambda server: {}, row_gradients)


def mean_score(model: Model, settings: QlsdSettings, given: Training, theta: Array) -> Array:
    """The score of log p_k at theta, C x d, from the mean over L batches."""
    score = likelihood_score(model, settings, given, settings.temperature)

    def add(number: Array, total: Array) -> Array:
        return total + score(number, theta)

    return jax.lax.fori_loop(0, settings.local_steps, add, jnp.zeros_like(theta)) / settings.local_steps


def quantised_langevin(
    model: Model,
    site: Site,
    settings: QlsdSettings,
    estimate: Estimate,
    kept: Callable[[Arrays], State],
    row_gradients: Callable[[int], dict[str, int]],
) -> Method:
    """Build QLSD around an estimate of the clients' gradients.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.
        estimate: The estimate of grad U_k without the prior.
        kept: The server's first state -> what a client keeps for its estimate.
        row_gradients: Rows -> rows x chains differentiated.

    Returns:
        The method. Its server state is the chains, their latest states, a key, and the memory eta_k of every client in
        the order in which they first trained.
    """
    fleet, levels = settings.client_count, settings.levels
    ratio = math.sqrt(model.dim) / levels
    learning = 1 / (1 + min(ratio, ratio**2))

    def init(key: Array) -> Arrays:
        first = first_chains(model, settings, key)
        shape = (fleet, *first["chain"].shape)
        return {**first, "ids": np.full(fleet, -1, np.int32), "memory": np.zeros(shape, first["chain"].dtype)}

    def client_state(server: Arrays) -> State:
        return {"memory": jnp.zeros_like(server["chain"]), **kept(server)}

    def train(given: Training) -> tuple[Arrays, State]:
        theta = given.received["chain"]
        slope, private = estimate(given)
        slope = slope - join(model.prior_score(model.split(theta))) / fleet
        sent = quantise(jax.random.fold_in(given.key, 2), slope - given.state["memory"], levels)
        memory = given.state["memory"] + learning * restore(sent["levels"], sent["norm"], levels)
        return sent, {"memory": memory, **private}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        ids, memory = server["ids"].copy(), server["memory"].copy()
        total = np.zeros(memory.shape[1:], np.float64)
        for client in sorted(updates):
            place = int(np.flatnonzero((ids == client) | (ids == -1))[0])
            ids[place] = client
            sent = np.asarray(restore(updates[client]["levels"], updates[client]["norm"], levels))
            total += memory[place].astype(np.float64) + sent
            memory[place] += np.asarray(learning * sent, memory.dtype)
        server, noise = next_noise({**server, "ids": ids, "memory": memory})
        size = float(scale) * settings.step_size
        moved = np.asarray(server["chain"], np.float64) - size * fleet / len(updates) * total
        chain = moved + math.sqrt(2 * size) * np.asarray(noise, np.float64)
        return with_chain(server, jnp.asarray(chain, server["chain"].dtype))

    return Method(
        name=settings.kind,
        spec=TargetSpec(model, site, settings.temperature, KERNELS["rbf"]),
        init=init,
        client_state=client_state,
        broadcast=lambda server, uses: {"particles": server["kept"]},
        assign=lambda server, accepted: {"chain": server["chain"]},
        train=train,
        apply=apply,
        posterior=lambda server: server["kept"],
        shared=(),
        sequential=False,
        row_gradients=row_gradients,
    )


def quantise(key: Array, values: Array, levels: int) -> Arrays:
    """C(v): every entry rounded at random, without bias, to a multiple of norm / s.

    Args:
        key: For the rounding.
        values: C x d.
        levels: s.

    Returns:
        ``levels`` (one byte each) and the ``norm`` of every row.
    """
    norm = jnp.linalg.norm(values, axis=1)
    scaled = levels * jnp.abs(values) / jnp.maximum(norm, 1e-30)[:, None]
    whole = jnp.floor(scaled)
    up = jax.random.uniform(key, values.shape, values.dtype) < scaled - whole
    return {"levels": (jnp.sign(values) * (whole + up)).astype(jnp.int8), "norm": norm}


def restore(level: Any, norm: Any, levels: int) -> Array:
    """The numbers that ``quantise`` has rounded to."""
    return jnp.asarray(level, jnp.asarray(norm).dtype) * (jnp.asarray(norm)[:, None] / levels)


QLSD = MethodKind(
    name="qlsd",
    about="Langevin dynamics at the server with gradients quantised to one byte for each number",
    settings=QlsdSettings,
    build=qlsd,
    sites="none",
    uses_sites=False,
    full_participation=True,
    least_particles=1,
)
