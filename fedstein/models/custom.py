"""A statistician's own model: functions of one parameter vector, batched over particles here."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.models.base import Blocks, Model, log_mean_exp


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
        return jax.vmap(log_likelihood, (0, None, None))(blocks[0], x, y) @ weights

    def batched_predict(blocks: Blocks, x: Array) -> Array:
        out = jax.vmap(predict, (0, None))(blocks[0], x)
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
