"""Stochastic gradient descent on one client's mean loss, and averages of what several clients send.

The step on the weights theta of every particle is

    theta <- theta + (rate / n) (score of the n rows, estimated from a batch + n * extra(theta)),

so ``rate`` is the step size of descent on the mean loss, and ``extra`` adds to minus its gradient: a proximal term, a
control variate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.data.shard import Batch, Shard, minibatch, shuffled, whole
from fedstein.inference.methods.base import MethodSettings, Training
from fedstein.inference.sites.base import Arrays
from fedstein.models.base import Blocks, Model

Extra = Callable[[Blocks], Blocks]


def batches(given: Training, batch_size: int) -> Callable[[Array], Batch]:
    """The batch of each step: all rows if the shard is small, else a cyclic pass in random order.

    Args:
        given: What the client got; its key decides the order.
        batch_size: Rows of a batch.

    Returns:
        Step -> ``Batch``.
    """
    shard: Shard = given.shard
    order = jnp.arange(1) if given.use_all else shuffled(given.key, shard)

    def batch_of(step: Array) -> Batch:
        return whole(shard) if given.use_all else minibatch(shard, order, step, batch_size)

    return batch_of


def local_sgd(
    model: Model, settings: MethodSettings, given: Training, start: Blocks, extra: Extra | None = None
) -> Blocks:
    """Take L steps from ``start``.

    Args:
        model: The model.
        settings: Steps, step size, batch size and temperature.
        given: What the client got.
        start: The weights to start from.
        extra: What is added to minus the gradient of the mean loss; nothing without it.

    Returns:
        The weights after the last step.
    """
    return jax.lax.fori_loop(0, settings.local_steps, sgd_step(model, settings, given, extra), start)


def sgd_step(
    model: Model, settings: MethodSettings, given: Training, extra: Extra | None = None
) -> Callable[[Array, Blocks], Blocks]:
    """One step of ``local_sgd``: step, weights -> weights."""
    shard, batch_of = given.shard, batches(given, settings.batch_size)
    rows = shard.rows.astype(shard.x.dtype)
    rate = given.scale * settings.step_size / rows  # the score is of the whole shard

    def step(number: Array, theta: Blocks) -> Blocks:
        batch = batch_of(number)
        score = model.likelihood_score(theta, batch.x, batch.y, batch.weights / settings.temperature)
        if extra is not None:
            score = jax.tree.map(lambda s, e: s + rows * e, score, extra(theta))
        return jax.tree.map(lambda t, s: t + rate * s, theta, score)

    return step


def average_by_rows(updates: Mapping[int, Arrays], name: str = "particles") -> np.ndarray:
    """The mean of one array over updates, weighted by rows, in float64.

    Args:
        updates: Updates by client, each with its ``rows``.
        name: The array.
    """
    rows = np.array([float(update["rows"]) for update in updates.values()])
    share = rows / rows.sum()
    return np.asarray(sum(w * np.asarray(u[name], np.float64) for w, u in zip(share, updates.values(), strict=True)))


def sgd_row_gradients(settings: MethodSettings) -> Callable[[int], dict[str, int]]:
    """Rows x particles that L steps of SGD differentiate."""
    return lambda rows: {
        "train": settings.local_steps * min(rows, settings.batch_size) * settings.particles,
        "site": 0,
    }
