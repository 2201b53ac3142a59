"""Distributed stochastic gradient Langevin dynamics (Ahn, Shahbaz and Welling 2014): a chain hops between clients.

The client s that the chain visits, each with probability f_s = 1 / K, takes L steps

    theta <- theta + (eps / 2) (grad log p0(theta) + (1 / f_s) grad log p_s(theta)) + sqrt(eps) Z,

grad log p_s estimated from a batch and scaled to the client's rows. Visits that are long or clients that differ pull
the chain towards the visited client, which FSGLD corrects. Selection by another rule than ``random`` changes f_s, and
the chain with it. The chain keeps its last ``particles`` states, one a visit, which predictions use.

Reference: Ahn, Shahbaz and Welling, "Distributed Stochastic Gradient MCMC", ICML 2014.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from fedstein.inference.langevin import ChainSettings, first_chains, with_chain
from fedstein.inference.local_vi import likelihood_score
from fedstein.inference.methods.base import Accepted, Method, MethodKind, Training
from fedstein.inference.sites.base import Arrays, Own, Site, State
from fedstein.inference.target import TargetSpec
from fedstein.models.base import Model, join
from fedstein.stein import KERNELS


class DsgldSettings(ChainSettings):
    """Settings of DSGLD."""

    kind: str = "dsgld"
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="How the step size changes over the rounds; samplers keep it."
    )


def dsgld(model: Model, site: Site, settings: ChainSettings) -> Method:
    """Build DSGLD.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method. Its server state is the chains, their latest states, and a key.
    """

    def train(given: Training) -> tuple[Arrays, State]:
        return {"chain": langevin_visit(model, settings, given)}, {}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        for update in updates.values():
            server = with_chain(server, update["chain"])
        return server

    def assign(server: Arrays, accepted: Own | None) -> Arrays:
        return {"chain": server["chain"]}

    def row_gradients(rows: int) -> dict[str, int]:
        return {"train": settings.local_steps * min(rows, settings.batch_size) * settings.chains, "site": 0}

    settings.client_count  # noqa: B018 - if it is not known, this refuses the run before anything is computed
    return Method(
        name=settings.kind,
        spec=TargetSpec(model, site, settings.temperature, KERNELS["rbf"]),
        init=lambda key: first_chains(model, settings, key),
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


def langevin_visit(
    model: Model, settings: ChainSettings, given: Training, conducive: Callable[[Array], Array] | None = None
) -> Array:
    """The chains after L steps on one client.

    Args:
        model: The model.
        settings: Steps, step size, batch size, temperature and the number of clients.
        given: What the client got.
        conducive: What is added to the score; nothing without it.

    Returns:
        C x d.
    """
    score = likelihood_score(model, settings, given, settings.temperature / settings.client_count)
    size = given.scale * settings.step_size
    key = jax.random.fold_in(given.key, 1)

    def step(number: Array, theta: Array) -> Array:
        drift = score(number, theta) + join(model.prior_score(model.split(theta)))
        if conducive is not None:
            drift = drift + conducive(theta)
        noise = jax.random.normal(jax.random.fold_in(key, number), theta.shape, theta.dtype)
        return theta + 0.5 * size * drift + jnp.sqrt(size) * noise

    return jax.lax.fori_loop(0, settings.local_steps, step, given.received["chain"])


DSGLD = MethodKind(
    name="dsgld",
    about="a Langevin chain that hops from client to client",
    settings=DsgldSettings,
    build=dsgld,
    sites="none",
    uses_sites=False,
    scheme="random",
    least_particles=1,
)
