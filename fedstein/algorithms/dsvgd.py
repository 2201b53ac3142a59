"""Distributed SVGD (Algorithms 1 and 2, steps 8 and 9): the chosen client moves the global particles itself.

For l = 1..L (eqn:glocal_svgd):  theta_n <- theta_n + eps * phi(theta_n), phi the SVGD direction for the tilted
p~_k = (q / t_k) p_k, p_k = exp(-L_k / alpha). Then the client refits its site (eqn:tk) and uploads the particles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.algorithms.base import Accepted, Algorithm, Arrays
from fedstein.models.base import Blocks, Model, join
from fedstein.shard import Batch, Shard, minibatch, shuffled, whole
from fedstein.sites.base import Site, State, Survey
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.discrepancy import ksd_in, norm_in
from fedstein.stein.walk import walk


def dsvgd(
    model: Model,
    site: Site,
    *,
    particles: int,
    steps: int,
    batch_size: int,
    temperature: float,
    optimiser: AdaGrad,
    keep_history: bool = False,
) -> Algorithm:
    """``steps`` is L; a shard of at most ``batch_size`` rows is used whole and unscaled.

    ``keep_history`` lets a client go on with its optimiser's history; the paper's authors reset it at every call.
    """

    def likelihood(blocks: Blocks, batch: Batch) -> Blocks:
        return model.likelihood_score(blocks, batch.x, batch.y, batch.weights / temperature)

    def report_batch(key: Array, shard: Shard, rows: int) -> Batch:
        return minibatch(shard, shuffled(key, shard), 0, rows) if rows else whole(shard)

    def broadcast(server: Arrays) -> Arrays:
        return {"particles": server["particles"]}

    def blocks(received: Arrays) -> Blocks:
        return model.split(received["particles"])

    def likelihood_score(key: Array, blocks: Blocks, shard: Shard, rows: int) -> Array:
        return join(likelihood(blocks, report_batch(key, shard, rows)))

    def tilted_ksd(key: Array, seen: Survey, state: State, shard: Shard, rows: int) -> Array:
        data = likelihood(seen.blocks, report_batch(key, shard, rows))
        return ksd_in(
            seen.frame, jax.tree.map(lambda *terms: sum(terms), data, seen.score, site.own_score(seen, state))
        )

    def innovation(key: Array, seen: tuple[Blocks, Array], state: State, shard: Shard, rows: int) -> Array:
        assert site.site_score is not None
        blocks, kernel = seen
        data = likelihood(blocks, report_batch(key, shard, rows))
        return norm_in(kernel, jax.tree.map(jnp.subtract, data, site.site_score(blocks, state)))

    def train(
        key: Array, received: Arrays, state: State, shard: Shard, use_all: bool, scale: Array
    ) -> tuple[Arrays, State]:
        before = blocks(received)
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
        after, history = walk(
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

    def first_state(received: Arrays) -> State:
        start = received["particles"]
        state = site.init(start)
        return {**state, "history": jnp.zeros_like(start), "taken": jnp.int32(0)} if keep_history else state

    def start(key: Array) -> Arrays:
        return {"particles": model.init(key, particles)}

    return Algorithm(
        name="dsvgd",
        start=start,
        first_sums=site.sums.first,
        broadcast=broadcast,
        tilted_broadcast=lambda server: {**broadcast(server), **site.sums.tilted(server)},
        assign=lambda server, accepted: {**broadcast(server), **site.sums.cavity(server, accepted)},
        first_state=first_state,
        likelihood_score=likelihood_score,
        blocks=blocks,
        survey=lambda received: site.survey(received, blocks(received)),
        tilted_ksd=tilted_ksd,
        innovation=innovation if site.site_score else None,
        train=train,
        shared=site.shared,
        apply=apply,
        total=lambda server, accepted: {**server, **site.sums.total(server, accepted)},
        renew=site.sums.renew,
        serial=True,
        row_gradients=lambda rows: {
            "train": steps * min(rows, batch_size) * particles,
            "site": site.row_gradients(rows) * particles,
        },
    )
