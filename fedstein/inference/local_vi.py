"""Variational inference on one client: a diagonal Gaussian q that fits the client's likelihood times a Gaussian anchor.

Both trainers minimise, over q = N(m, s^2),

    E_q[loss_k(theta)] - E_q[log anchor(theta)] - entropy(q),      anchor = exp(eta . theta - theta' diag(a) theta / 2).

With the cavity as the anchor and minus the log-likelihood as the loss that is KL(q || cavity x p_k) up to a constant.
Expectations are averages over antithetic draws m +- s e.

- ``adam_vi`` takes reparametrised gradients in m and log s, and Adam steps.
- ``natural_vi`` is the variational online Newton method IVON (Shen et al. 2024) with the anchor as its prior: with g
  the averaged score and h = -g e / s averaged, which is the expected curvature by Stein's identity,

      P <- P (1 + x + x^2 / 2),  x = b (a + h - P) / P;     m <- m + r (momentum of g + eta - a m) / P,

  P the precision of q. The square keeps P positive whatever the estimate of h is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.inference.local_sgd import batches
from fedstein.inference.methods.base import MethodSettings, Training
from fedstein.models.base import Model, join

Score = Callable[[Array, Array], Array]  # step, theta (S x d) -> the score of minus the loss, S x d
Regular = Callable[[Array, Array], Array]  # mean, log sd -> what is minimised besides the expected loss


class Anchor(NamedTuple):
    """exp(eta . theta - theta' diag(precision) theta / 2)."""

    eta: Array
    precision: Array


def likelihood_score(model: Model, settings: MethodSettings, given: Training, temperature: Array | float) -> Score:
    """The score of log p_k / temperature, estimated from the batch of a step.

    Args:
        model: The model.
        settings: The batch size.
        given: What the client got.
        temperature: What the log-likelihood is divided by.
    """
    batch_of = batches(given, settings.batch_size)

    def score(step: Array, theta: Array) -> Array:
        batch = batch_of(step)
        return join(model.likelihood_score(model.split(theta), batch.x, batch.y, batch.weights / temperature))

    return score


def antithetic(key: Array, step: Array, samples: int, like: Array) -> Array:
    """``samples`` draws of a standard normal and their negatives, 2 samples x d."""
    half = jax.random.normal(jax.random.fold_in(key, step), (samples, like.shape[0]), like.dtype)
    return jnp.concatenate([half, -half])


def kl_to(anchor: Anchor) -> Regular:
    """-E_q[log anchor] - entropy(q): the Kullback-Leibler divergence from the anchor, up to a constant."""

    def regular(mean: Array, log_sd: Array) -> Array:
        energy = 0.5 * anchor.precision * (mean**2 + jnp.exp(2 * log_sd)) - anchor.eta * mean
        return jnp.sum(energy - log_sd)

    return regular


def adam_vi(
    score: Score,
    regular: Regular,
    start: tuple[Array, Array],
    *,
    key: Array,
    steps: int,
    rate: Array | float,
    samples: int,
) -> tuple[Array, Array]:
    """Fit q by reparametrised gradients and Adam.

    Args:
        score: The score of minus the loss.
        regular: What is minimised besides, ``kl_to`` or another divergence.
        start: Mean and precision to start from.
        key: For the draws.
        steps: Adam steps; over the last half of them the rate falls to zero.
        rate: The rate of Adam.
        samples: Pairs of antithetic draws of a step.

    Returns:
        Mean and precision of q.
    """

    def gradient(step: Array, point: tuple[Array, Array]) -> tuple[Array, Array]:
        mean, log_sd = point
        noise = antithetic(key, step, samples, mean)
        sd = jnp.exp(log_sd)
        found = score(step, mean + sd * noise)
        of_mean, of_log_sd = jax.grad(regular, (0, 1))(mean, log_sd)
        return of_mean - jnp.mean(found, axis=0), of_log_sd - sd * jnp.mean(found * noise, axis=0)

    def body(step: Array, carry: tuple) -> tuple:
        point, first, second = carry
        slope = gradient(step, point)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, second, slope)
        count = step + 1
        now = rate * jnp.minimum(1.0, 2 * (1 - step / steps))

        def moved(p: Array, m: Array, v: Array) -> Array:
            return p - now * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)

        return jax.tree.map(moved, point, first, second), first, second

    mean, precision = start
    begin = (mean, -0.5 * jnp.log(precision))
    zeros = jax.tree.map(jnp.zeros_like, begin)
    (mean, log_sd), _, _ = jax.lax.fori_loop(0, steps, body, (begin, zeros, zeros))
    return mean, jnp.exp(-2 * log_sd)


def natural_vi(
    score: Score,
    anchor: Anchor,
    start: tuple[Array, Array],
    *,
    key: Array,
    steps: int,
    rate: Array | float,
    curvature_rate: float,
    samples: int,
    momentum: float = 0.9,
) -> tuple[Array, Array]:
    """Fit q by natural gradients (IVON).

    Args:
        score: The score of minus the loss.
        anchor: The Gaussian that takes the place of IVON's prior.
        start: Mean and precision to start from.
        key: For the draws.
        steps: Steps.
        rate: The share of a Newton step that a step takes.
        curvature_rate: b, the weight of a new estimate of the curvature.
        samples: Pairs of antithetic draws of a step.
        momentum: Of the score.

    Returns:
        Mean and precision of q.
    """

    def body(step: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        mean, precision, moving = carry
        noise = antithetic(key, step, samples, mean)
        sd = 1 / jnp.sqrt(precision)
        found = score(step, mean + sd * noise)
        moving = momentum * moving + (1 - momentum) * jnp.mean(found, axis=0)
        curvature = -jnp.mean(found * noise, axis=0) / sd
        change = jnp.clip(curvature_rate * (anchor.precision + curvature - precision) / precision, -1.0, 3.0)
        precision = precision * (1 + change + 0.5 * change**2)
        slope = moving / (1 - momentum ** (step + 1)) + anchor.eta - anchor.precision * mean
        return mean + rate * slope / precision, precision, moving

    mean, precision, _ = jax.lax.fori_loop(0, steps, body, (*start, jnp.zeros_like(start[0])))
    return mean, precision
