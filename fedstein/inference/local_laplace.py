"""The mode of one client's likelihood times a Gaussian anchor, and the curvature of the likelihood there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.data.shard import whole
from fedstein.inference.local_sgd import batches
from fedstein.inference.local_vi import Anchor
from fedstein.inference.methods.base import MethodSettings, Training
from fedstein.models.base import Model, join
from fedstein.models.fisher import diagonal_fisher


def curvature_at(model: Model, given: Training, mean: Array, temperature: float) -> Array:
    """The diagonal of the likelihood's curvature at a point, d numbers, none of them negative.

    Args:
        model: The model.
        given: What the client got; all its rows are used.
        mean: The point.
        temperature: What the log-likelihood is divided by.
    """
    rows = whole(given.shard)
    blocks = model.split(mean[None])
    samples = 0 if model.classes <= 10 else 1
    found = diagonal_fisher(model, blocks, rows.x, rows.weights / temperature, given.key, samples, rows.y)
    return join(found)[0]


def local_mode(model: Model, settings: MethodSettings, given: Training, anchor: Anchor, start: Array) -> Array:
    """Climb to the mode of p_k times the anchor, by Adam steps.

    Args:
        model: The model.
        settings: Steps, step size, batch size and temperature.
        given: What the client got.
        anchor: The Gaussian anchor.
        start: The point to start from.

    Returns:
        The point after L steps; over the last half of them the rate falls to zero.
    """
    batch_of = batches(given, settings.batch_size)

    def body(step: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        mean, first, second = carry
        batch = batch_of(step)
        weights = batch.weights / settings.temperature
        slope = join(model.likelihood_score(model.split(mean[None]), batch.x, batch.y, weights))[0]
        slope = slope + anchor.eta - anchor.precision * mean
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        now = given.scale * settings.step_size * jnp.minimum(1.0, 2 * (1 - step / settings.local_steps))
        adam = (first / (1 - 0.9 ** (step + 1))) / (jnp.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8)
        return mean + now * adam, first, second

    zeros = jnp.zeros_like(start)
    return jax.lax.fori_loop(0, settings.local_steps, body, (start, zeros, zeros))[0]
