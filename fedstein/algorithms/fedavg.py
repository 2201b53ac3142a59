"""Federated averaging (McMahan et al. 2017): the selected clients run SGD from the same weights, the server averages.

A reference, not a Bayesian method: each particle is a network of its own that maximises the likelihood (the prior is
not used), one by default. The step size is the rate of SGD on the mean loss of a batch, and the average is weighted by
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.algorithms.base import Accepted, Algorithm, Arrays
from fedstein.algorithms.dsvgd import dsvgd
from fedstein.models.base import Blocks, Model, join
from fedstein.shard import Shard, minibatch, shuffled, whole
from fedstein.sites.base import Site, State
from fedstein.stein.adagrad import AdaGrad


def fedavg(
    model: Model, site: Site, *, particles: int, steps: int, batch_size: int, temperature: float, optimiser: AdaGrad
) -> Algorithm:
    """``optimiser`` lends its step size alone."""
    common: dict[str, Any] = {
        "particles": particles,
        "steps": steps,
        "batch_size": batch_size,
        "temperature": temperature,
    }
    serial = dsvgd(model, site, **common, optimiser=optimiser)

    def train(
        key: Array, received: Arrays, state: State, shard: Shard, use_all: bool, scale: Array
    ) -> tuple[Arrays, State]:
        order = jnp.arange(1) if use_all else shuffled(key, shard)
        rate = scale * optimiser.step_size / shard.rows.astype(shard.x.dtype)  # the score is of the whole shard

        def step(number: Array, theta: Blocks) -> Blocks:
            batch = whole(shard) if use_all else minibatch(shard, order, number, batch_size)
            score = model.likelihood_score(theta, batch.x, batch.y, batch.weights / temperature)
            return jax.tree.map(lambda t, s: t + rate * s, theta, score)

        theta = jax.lax.fori_loop(0, steps, step, model.split(received["particles"]))
        return {"particles": join(theta), "rows": shard.rows}, {}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        rows = np.array([float(update["rows"]) for update in updates.values()])
        share = rows / rows.sum()
        average = sum(w * np.asarray(u["particles"], np.float64) for w, u in zip(share, updates.values(), strict=True))
        return {**server, "particles": jnp.asarray(average, server["particles"].dtype)}

    return serial._replace(name="fedavg", train=train, apply=apply, serial=False)
