"""The posterior predictive distribution: probabilities averaged over particles, block by block of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.data.shard import padded_length
from fedstein.evaluation.metrics import BUILT_IN, Metric, Sums, sums_over
from fedstein.evaluation.prediction import Prediction
from fedstein.models.base import Model

BLOCK = 512  # the rows of a block; a block bounds the memory of a wide network


class Predictive:
    """Predictions of one model for fixed rows, compiled once.

    With ``alike`` they are padded to a length that about as many rows share, so that clients need few programs.
    """

    def __init__(self, model: Model, x: np.ndarray, alike: bool = False):
        self.model, self.rows = model, len(x)
        block = min(BLOCK, 1 << (len(x) - 1).bit_length() if alike else max(len(x), 1))
        blocks = -(-len(x) // block)
        blocks = padded_length(blocks) if alike else blocks
        padded = np.pad(model.prepare(x), ((0, blocks * block - len(x)), (0, 0)))
        self.x = jnp.asarray(padded.reshape(blocks, block, padded.shape[1]), jnp.result_type(float))

    def sums(self, particles: Array, y: np.ndarray, metrics: Sequence[Metric] = BUILT_IN) -> Sums:
        """Compute the sums over these rows from which the metrics are computed.

        Args:
            particles: N x d.
            y: The label or the target of each row, as the model takes it.
            metrics: What the sums are for.

        Returns:
            The sums by name.
        """
        return sums_of(self.model.task, self(particles), y, metrics, self.log_densities(particles, y))

    def log_densities(self, particles: Array, y: np.ndarray) -> np.ndarray | None:
        """The model's own log-densities at targets.

        Args:
            particles: N x d.
            y: The target of each row.

        Returns:
            Rows x N numbers, or None for a model whose ``predict`` says everything.
        """
        if self.model.log_density is None or self.model.task != "regression":
            return None
        blocks, block, _ = self.x.shape
        padded = np.pad(np.asarray(y), (0, blocks * block - self.rows), mode="edge").reshape(blocks, block)
        labels = jnp.asarray(padded, self.x.dtype)
        found = _log_densities(self.model.log_density, self.model.split, particles, self.x, labels)
        return np.asarray(found, np.float64)[: self.rows]

    def __call__(self, particles: Array) -> np.ndarray:
        """Classification: rows x classes log-probabilities. Regression: rows x 2N, means then log-precisions."""
        return np.asarray(_predict(self.model.predict, self.model.split, particles, self.x), np.float64)[: self.rows]


@partial(jax.jit, static_argnums=(0, 1))
def _predict(predict: object, split: object, particles: Array, x: Array) -> Array:
    blocks = split(particles)  # type: ignore[operator]
    out = jax.lax.map(lambda rows: predict(blocks, rows), x)  # type: ignore[operator]
    return out.reshape(-1, out.shape[-1])


@partial(jax.jit, static_argnums=(0, 1))
def _log_densities(log_density: object, split: object, particles: Array, x: Array, y: Array) -> Array:
    blocks = split(particles)  # type: ignore[operator]
    out = jax.lax.map(lambda pair: log_density(blocks, *pair), (x, y))  # type: ignore[operator]
    return out.reshape(-1, out.shape[-1])


def sums_of(
    task: str,
    out: np.ndarray,
    y: np.ndarray,
    metrics: Sequence[Metric] = BUILT_IN,
    log_densities: np.ndarray | None = None,
) -> Sums:
    """Compute the sums over predictions from which the metrics are computed.

    Args:
        task: ``"classification"`` or ``"regression"``.
        out: The predictions as ``Predictive`` gives them.
        y: The label or the standardised target of each row.
        metrics: What the sums are for.
        log_densities: What ``Predictive.log_densities`` gives.

    Returns:
        The sums by name.
    """
    return sums_over(Prediction(task, out, log_densities), y, metrics)
