"""Distributed SVGD (Algorithms 1 and 2, steps 8 and 9): the chosen client moves the global particles itself.

For l = 1..L (eqn:glocal_svgd):  theta_n <- theta_n + eps * phi(theta_n), phi the SVGD direction for the tilted
p~_k = (q / t_k) p_k, p_k = exp(-L_k / alpha). Then the client refits its site (eqn:tk) and uploads the particles.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.data.shard import minibatch, shuffled, whole
from fedstein.inference.methods.base import Accepted, Method, MethodKind, SvgdSettings, Training
from fedstein.inference.methods.conclude import conclude
from fedstein.inference.sites.base import Arrays, Own, Site, State
from fedstein.inference.target import TILTED, TargetSpec
from fedstein.models.base import Blocks, Model, join
from fedstein.stein import KERNELS
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.svgd_loop import svgd_loop


class DsvgdSettings(SvgdSettings):
    """Settings of distributed SVGD."""

    kind: str = "dsvgd"


def dsvgd(
    model: Model, site: Site, settings: SvgdSettings, *, name: str = "dsvgd", keep_history: bool = False
) -> Method:
    """Build distributed SVGD.

    Args:
        model: The model.
        site: The sites that clients keep.
        settings: The settings of ``[algorithm]``.
        name: The name of the method.
        keep_history: Whether a client goes on with its optimiser's history; the paper's authors reset it at every call.

    Returns:
        The method. Its server state is ``particles`` (N x d) and the sums of the sites.
    """
    spec = TargetSpec(model, site, settings.temperature, KERNELS[settings.kernel])
    optimiser = AdaGrad(settings.step_size, settings.epsilon)
    steps, batch_size, temperature = settings.local_steps, settings.batch_size, settings.temperature

    def init(key: Array) -> Arrays:
        particles = initial_particles(model, settings.particles, key)
        return {"particles": particles, **site.sums.first(particles)}

    def client_state(server: Arrays) -> State:
        start = server["particles"]
        state = site.init(start)
        return {**state, "history": jnp.zeros_like(start), "taken": jnp.int32(0)} if keep_history else state

    def broadcast(server: Arrays, uses: tuple[str, ...]) -> Arrays:
        particles = {"particles": server["particles"]}
        return {**particles, **site.sums.tilted(server)} if TILTED in uses else particles

    def assign(server: Arrays, accepted: Own | None) -> Arrays:
        return {"particles": server["particles"], **site.sums.cavity(server, accepted)}

    def train(given: Training) -> tuple[Arrays, State]:
        key, received, state, shard, use_all, scale = given
        before = model.split(received["particles"])
        cavity = site.cavity(received, before, state)
        order = jnp.arange(1) if use_all else shuffled(key, shard)

        def score(step: Array, offset: Blocks, origin: Blocks) -> Blocks:
            batch = whole(shard) if use_all else minibatch(shard, order, step, batch_size)
            tempered = batch.weights / temperature
            data = model.likelihood_score_around(offset, origin, batch.x, batch.y, tempered)
            if cavity.score is None:
                return data
            return jax.tree.map(jnp.add, data, cavity.score(jax.tree.map(jnp.add, offset, origin)))

        history = model.split(state["history"]) if keep_history else None
        taken = state["taken"] if keep_history else jnp.int32(0)
        after, history = svgd_loop(
            steps,
            before,
            score,
            cavity.mixtures,
            site.direction,
            optimiser,
            linear=cavity.linear,
            relative=True,
            scale=scale,
            history=history,
            taken=taken,
        )
        fitted = site.refit(jax.random.fold_in(key, 1), before, after, state, shard)
        if keep_history:
            fitted = {**fitted, "history": join(history), "taken": taken + steps}
        sent = {name: fitted[name] for name in site.shared}
        return {"particles": join(after), **sent}, {k: v for k, v in fitted.items() if k not in sent}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        for client, update in updates.items():
            sums = site.sums.absorb(server, accepted.get(client), update)
            server = {**server, "particles": update["particles"], **sums}
        return server

    def row_gradients(rows: int) -> dict[str, int]:
        trained = steps * min(rows, batch_size) * settings.particles
        return {"train": trained, "site": site.row_gradients(rows) * settings.particles}

    return Method(
        name=name,
        spec=spec,
        init=init,
        client_state=client_state,
        broadcast=broadcast,
        assign=assign,
        train=train,
        apply=apply,
        posterior=particles_of,
        shared=site.shared,
        sequential=True,
        row_gradients=row_gradients,
        conclude=partial(conclude, spec),
    )


@partial(jax.jit, static_argnums=(0, 1))
def initial_particles(model: Model, particles: int, key: Array) -> Array:
    """N x d initial particles of the model."""
    return model.init(key, particles)


def particles_of(server: Arrays) -> Any:
    """Return the particles, which are the sample of the posterior."""
    return server["particles"]


DSVGD = MethodKind(
    name="dsvgd",
    about="distributed SVGD: the selected client moves the global particles",
    settings=DsvgdSettings,
    build=dsvgd,
    leaves_sums=True,
)
