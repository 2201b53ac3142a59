"""The posterior predictive distribution: probabilities averaged over particles, block by block of rows."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.metrics import Sums, classification_sums, regression_sums
from fedstein.models.base import Model
from fedstein.shard import padded_length

BLOCK = 512  # rows a block: what bounds the memory of a wide network


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

    def __call__(self, particles: Array) -> np.ndarray:
        """Classification: rows x classes log-probabilities. Regression: rows x 2N, means then log-precisions."""
        return np.asarray(_predict(self.model.predict, self.model.split, particles, self.x), np.float64)[: self.rows]


@partial(jax.jit, static_argnums=(0, 1))
def _predict(predict: object, split: object, particles: Array, x: Array) -> Array:
    blocks = split(particles)  # type: ignore[operator]
    out = jax.lax.map(lambda rows: predict(blocks, rows), x)  # type: ignore[operator]
    return out.reshape(-1, out.shape[-1])


def mixture_moments(out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the Gaussian mixture over particles (regression)."""
    mean, log_precision = np.split(out, 2, axis=1)
    variance = np.exp(-log_precision).mean(axis=1) + mean.var(axis=1)
    return mean.mean(axis=1), np.sqrt(variance)


def mixture_log_density(out: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log (1/N) sum_n N(y; mean_n, 1/gamma_n)."""
    mean, log_precision = np.split(out, 2, axis=1)
    each = 0.5 * (log_precision - math.log(2 * math.pi) - np.exp(log_precision) * (y[:, None] - mean) ** 2)
    top = each.max(axis=1)
    return top + np.log(np.mean(np.exp(each - top[:, None]), axis=1))


def sums_of(task: str, out: np.ndarray, y: np.ndarray) -> Sums:
    """What the metrics of predictions ``out``, as ``Predictive`` gives them, are made of."""
    if task == "classification":
        return classification_sums(out, y)
    target = np.asarray(y, np.float64)
    mean, _ = mixture_moments(out)
    return regression_sums(mixture_log_density(out, target), mean, target)
