"""A statistician's own model: functions of one parameter vector, batched over particles here."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.models.base import Blocks, Model, log_mean_exp

LARGE = 1000  # parameters from which on a CPU takes particles one after another


def custom(
    dim: int,
    *,
    log_prior: Callable[[Array], Array],
    log_likelihood: Callable[[Array, Array, Array], Array],
    init: Callable[[Array], Array],
    predict: Callable[[Array, Array], Array],
    task: str = "classification",
    classes: int = 0,
    name: str = "custom",
) -> Model:
    """A model from functions of one theta (length ``dim``).

    ``log_prior(theta)`` is a scalar; ``log_likelihood(theta, x, y)`` gives one value per row; ``init(key)`` draws one
    theta. ``predict(theta, x)`` gives, for classification, rows x classes log-probabilities; for regression rows x 2,
    the mean and the log-precision of y.
    """

    def batched_log_likelihood(blocks: Blocks, x: Array, y: Array, weights: Array) -> Array:
        return each(lambda theta: log_likelihood(theta, x, y) @ weights, blocks[0])

    def batched_predict(blocks: Blocks, x: Array) -> Array:
        out = each(lambda theta: predict(theta, x), blocks[0])
        return log_mean_exp(out) if task == "classification" else jnp.concatenate([out[..., 0].T, out[..., 1].T], 1)

    return Model(
        name=name,
        task=task,
        widths=(dim,),
        init=lambda key, n: jax.vmap(init)(jax.random.split(key, n)),
        log_prior=lambda blocks: jax.vmap(log_prior)(blocks[0]),
        log_likelihood=batched_log_likelihood,
        predict=batched_predict,
        classes=classes,
    )


def each(function: Callable[[Array], Array], particles: Array) -> Array:
    """``function`` of every particle.

    A network's products, batched over particles, are what XLA's CPU compiler is worst at: a large theta is taken one
    particle after another there, which keeps every product a plain one. Small ones are taken together, and so are all
    on accelerators.
    """
    if particles.shape[1] >= LARGE and jax.default_backend() == "cpu":
        return jax.lax.map(function, particles)
    return jax.vmap(function)(particles)
