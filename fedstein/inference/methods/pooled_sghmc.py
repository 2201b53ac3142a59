"""Stochastic gradient Hamiltonian Monte Carlo on all clients' rows in one place: a reference, not a federated method.

Chains with a momentum v take L steps a round,

    v <- (1 - a) v + eta (grad log p0(theta) + grad log p(rows | theta)) + N(0, 2 a eta),    theta <- theta + v,

the likelihood estimated from a batch of all rows. With small steps eta the stationary distribution is the posterior. A
comparison with pooled SVGD separates the effect of distributed rows from the effect of using particles.

Reference: Chen, Fox and Guestrin, "Stochastic Gradient Hamiltonian Monte Carlo", ICML 2014, equation 15.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from fedstein.inference.langevin import SamplerSettings, first_chains, with_chain
from fedstein.inference.local_vi import likelihood_score
from fedstein.inference.methods.base import Accepted, Method, MethodKind, Training
from fedstein.inference.sites.base import Arrays, Own, Site, State
from fedstein.inference.target import TargetSpec
from fedstein.models.base import Model, join
from fedstein.stein import KERNELS


class SghmcSettings(SamplerSettings):
    """Settings of pooled SGHMC."""

    kind: str = "pooled_sghmc"
    friction: float = Field(0.1, gt=0, le=1, description="a, the share of the momentum that a step takes away.")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="How the step size changes over the rounds; samplers keep it."
    )


def pooled_sghmc(model: Model, site: Site, settings: SghmcSettings) -> Method:
    """Build pooled SGHMC.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method. Its server state is the chains, their momenta, their latest states, and a key.
    """

    def init(key: Array) -> Arrays:
        first = first_chains(model, settings, key)
        return {**first, "momentum": jnp.zeros_like(first["chain"])}

    def train(given: Training) -> tuple[Arrays, State]:
        score = likelihood_score(model, settings, given, settings.temperature)
        size, friction = given.scale * settings.step_size, settings.friction
        key = jax.random.fold_in(given.key, 1)

        def step(number: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            theta, momentum = now
            drift = score(number, theta) + join(model.prior_score(model.split(theta)))
            noise = jax.random.normal(jax.random.fold_in(key, number), theta.shape, theta.dtype)
            momentum = (1 - friction) * momentum + size * drift + jnp.sqrt(2 * friction * size) * noise
            return theta + momentum, momentum

        start = (given.received["chain"], given.received["momentum"])
        chain, momentum = jax.lax.fori_loop(0, settings.local_steps, step, start)
        return {"chain": chain, "momentum": momentum}, {}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        for update in updates.values():
            server = {**with_chain(server, update["chain"]), "momentum": update["momentum"]}
        return server

    def assign(server: Arrays, accepted: Own | None) -> Arrays:
        return {"chain": server["chain"], "momentum": server["momentum"]}

    def row_gradients(rows: int) -> dict[str, int]:
        return {"train": settings.local_steps * min(rows, settings.batch_size) * settings.chains, "site": 0}

    return Method(
        name=settings.kind,
        spec=TargetSpec(model, site, settings.temperature, KERNELS["rbf"]),
        init=init,
        client_state=lambda server: {},
        broadcast=lambda server, uses: {"particles": server["kept"]},
        assign=assign,
        train=train,
        apply=apply,
        posterior=lambda server: server["kept"],
        shared=(),
        sequential=True,
        row_gradients=row_gradients,
    )


POOLED_SGHMC = MethodKind(
    name="pooled_sghmc",
    about="reference: Hamiltonian Monte Carlo with batches, on the rows of all clients in one place",
    settings=SghmcSettings,
    build=pooled_sghmc,
    sites="none",
    uses_sites=False,
    answers_reports=False,
    pooled=True,
    least_particles=1,
)
