"""Predictions of each draw of theta on its own. ``predictive`` averages over draws instead.

Uncertainty has two sources: the spread of p(y | x, theta) for each theta, and the spread over theta. Only the
predictions of single draws tell them apart.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.evaluation.predictive import Predictive
from fedstein.models.base import Model


def class_log_probabilities(model: Model, x: np.ndarray, points: np.ndarray) -> np.ndarray:
    """log p(class | x_i, theta_n) of a classification.

    Args:
        model: The model.
        x: Rows in the form of a dataset.
        points: N x d draws of theta.

    Returns:
        N x rows x classes.
    """
    rows = Predictive(model, x)
    found = _by_point(model.predict, model.split, jnp.asarray(points, rows.x.dtype), rows.x)
    return np.asarray(found, np.float64)[:, : rows.rows]


def log_likelihoods(model: Model, x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray | None:
    """log p(y_i | x_i, theta_n).

    Args:
        model: The model.
        x: Rows in the form of a dataset.
        y: Class indices, or targets as the model takes them.
        points: N x d draws of theta.

    Returns:
        N x rows; None if the model gives no density of single rows: its likelihood is that of a whole client, or
        ``predict`` gives moments of a distribution that is no Gaussian.
    """
    if model.whole_shard:
        return None
    if model.task == "classification":
        found = class_log_probabilities(model, x, points)
        return np.take_along_axis(found, np.asarray(y, np.int64)[None, :, None], axis=2)[..., 0]
    rows, particles = Predictive(model, x), jnp.asarray(points, jnp.result_type(float))
    own = rows.log_densities(particles, y)
    if own is not None:
        return own.T
    if model.family != "gaussian":
        return None
    mean, log_precision = gaussian_parts(model, x, points)
    return 0.5 * (log_precision - math.log(2 * math.pi) - np.exp(log_precision) * (np.asarray(y) - mean) ** 2)


def gaussian_parts(model: Model, x: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and log-precision of y of a regression.

    Args:
        model: The model.
        x: Rows in the form of a dataset.
        points: N x d draws of theta.

    Returns:
        Two arrays, N x rows.
    """
    out = Predictive(model, x)(jnp.asarray(points, jnp.result_type(float)))
    mean, log_precision = np.split(out, 2, axis=1)
    return mean.T, log_precision.T


def predictive_draws(model: Model, x: np.ndarray, points: np.ndarray, seed: int) -> np.ndarray | None:
    """One draw of y for each row and each draw of theta.

    Args:
        model: The model.
        x: Rows in the form of a dataset.
        points: N x d draws of theta.
        seed: The same seed gives the same draws.

    Returns:
        N x rows class indices or targets; None if the model says nothing of the distribution but its moments.
    """
    rng = np.random.default_rng(seed)
    if model.task == "classification":
        found = class_log_probabilities(model, x, points)
        return (found + rng.gumbel(size=found.shape)).argmax(axis=2)
    if model.sample is not None:
        rows = jnp.asarray(model.prepare(x), jnp.result_type(float))
        blocks = model.split(jnp.asarray(points, rows.dtype))
        return np.asarray(model.sample(jax.random.key(seed), blocks, rows), np.float64).T
    if model.family != "gaussian":
        return None
    mean, log_precision = gaussian_parts(model, x, points)
    return mean + np.exp(-0.5 * log_precision) * rng.standard_normal(mean.shape)


@partial(jax.jit, static_argnums=(0, 1))
def _by_point(predict: object, split: object, points: Array, x: Array) -> Array:
    def one(point: Array) -> Array:
        blocks = split(point[None])  # type: ignore[operator]
        out = jax.lax.map(lambda rows: predict(blocks, rows), x)  # type: ignore[operator]
        return out.reshape(-1, out.shape[-1])

    return jax.lax.map(one, points)
