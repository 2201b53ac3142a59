"""Distributed SVGD (Algorithms 1 and 2, steps 8 and 9): the chosen client moves the global particles itself.

For l = 1..L (eqn:glocal_svgd):  theta_n <- theta_n + eps * phi(theta_n), phi the SVGD direction for the tilted
p~_k = (q / t_k) p_k, p_k = exp(-L_k / alpha). Then the client refits its site (eqn:tk) and uploads the particles.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.algorithms.base import Algorithm, Arrays
from fedstein.models.base import Blocks, Model, join
from fedstein.shard import Batch, Shard, minibatch, shuffled, whole
from fedstein.sites.base import Site, State, Survey
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.discrepancy import ksd_in
from fedstein.stein.walk import walk


def dsvgd(
    model: Model, site: Site, *, particles: int, steps: int, batch_size: int, temperature: float, optimiser: AdaGrad
) -> Algorithm:
    """``steps`` is L; a shard of at most ``batch_size`` rows is used whole and unscaled."""

    def likelihood(blocks: Blocks, batch: Batch) -> Blocks:
        return model.likelihood_score(blocks, batch.x, batch.y, batch.weights / temperature)

    def report_batch(key: Array, shard: Shard, rows: int) -> Batch:
        return minibatch(shard, shuffled(key, shard), 0, rows) if rows else whole(shard)

    def blocks(received: Arrays) -> Blocks:
        return model.split(received["particles"])

    def likelihood_score(key: Array, blocks: Blocks, shard: Shard, rows: int) -> Array:
        return join(likelihood(blocks, report_batch(key, shard, rows)))

    def tilted_ksd(key: Array, seen: Survey, state: State, shard: Shard, rows: int) -> Array:
        data = likelihood(seen.blocks, report_batch(key, shard, rows))
        return ksd_in(
            seen.frame, jax.tree.map(lambda *terms: sum(terms), data, seen.score, site.own_score(seen, state))
        )

    def train(key: Array, received: Arrays, state: State, shard: Shard, use_all: bool) -> tuple[Arrays, State]:
        before = blocks(received)
        cavity = site.cavity(before, state)
        order = jnp.arange(1) if use_all else shuffled(key, shard)

        def score(step: Array, theta: Blocks) -> Blocks:
            batch = whole(shard) if use_all else minibatch(shard, order, step, batch_size)
            data = likelihood(theta, batch)
            return data if cavity.linear is not None else jax.tree.map(jnp.add, data, cavity.score(theta))

        after = walk(steps, before, score, cavity.mixtures, site.direction, optimiser, cavity.linear)
        return {"particles": join(after)}, site.refit(before, after, state)

    return Algorithm(
        name="dsvgd",
        start=lambda key: {"particles": model.init(key, particles)},
        broadcast=lambda server: {"particles": server["particles"]},
        first_state=lambda received: site.init(received["particles"]),
        likelihood_score=likelihood_score,
        blocks=blocks,
        survey=lambda received: site.survey(blocks(received)),
        tilted_ksd=tilted_ksd,
        train=train,
        apply=lambda server, updates: {**server, **next(iter(updates.values()))},
        serial=True,
        row_gradients=lambda rows: {"train": steps * min(rows, batch_size) * particles, "site": 0},
    )
