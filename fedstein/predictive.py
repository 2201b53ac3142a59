"""The posterior predictive distribution: probabilities averaged over particles, block by block of rows."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein import metrics
from fedstein.algorithms.base import Arrays
from fedstein.data import Dataset
from fedstein.models.base import Model

BLOCK = 512  # rows a block: what bounds the memory of a wide network


class Predictive:
    """Predictions of one model for fixed rows, compiled once."""

    def __init__(self, model: Model, x: np.ndarray):
        self.model, self.rows = model, len(x)
        block = min(BLOCK, max(len(x), 1))
        blocks = -(-len(x) // block)
        padded = np.pad(model.prepare(x), ((0, blocks * block - len(x)), (0, 0)))
        self.x = jnp.asarray(padded.reshape(blocks, block, -1), jnp.result_type(float))

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


class Evaluation:
    """Metrics of a server's state on the test rows."""

    def __init__(self, model: Model, dataset: Dataset):
        self.dataset = dataset
        self.predictive = Predictive(model, dataset.test_x)

    def __call__(self, server: Arrays) -> metrics.Metrics:
        out = self.predictive(server["particles"])
        if self.dataset.task == "classification":
            return metrics.classification(out, self.dataset.test_y)
        y = np.asarray(self.dataset.test_y, np.float64)
        mean, _ = mixture_moments(out)
        return metrics.regression(mixture_log_density(out, y), mean, y, self.dataset.target_scale)

    def reliability(self, server: Arrays) -> list[dict[str, float | None]] | None:
        """The reliability curve; regression has none."""
        if self.dataset.task != "classification":
            return None
        return metrics.reliability(self.predictive(server["particles"]), self.dataset.test_y)
