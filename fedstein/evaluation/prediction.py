"""The input of metrics: the predictive distribution of some rows, averaged over the particles. It uses NumPy only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
CLASSIFICATION, REGRESSION = "classification", "regression"
TASKS = (CLASSIFICATION, REGRESSION)


@dataclass(frozen=True)
class Prediction:
    """The predictions of some rows. Each property is computed once, and exists only for the task that it names.

    Attributes:
        task: ``"classification"`` or ``"regression"``.
        values: Classification: log-probabilities, rows x classes. Regression: rows x 2N, the means of the Gaussian
            mixture over the N particles, then their log-precisions, for the standardised target.
        own_log_densities: Regression, if the model is no Gaussian: its own log-densities at the targets of these
            rows, rows x N. They take the place of the Gaussian mixture's in ``log_density``.
    """

    task: str
    values: ArrayLike
    own_log_densities: ArrayLike | None = None

    @cached_property
    def log_probs(self) -> Floats:
        """Classification: rows x classes."""
        return np.asarray(self.values, np.float64)

    @cached_property
    def probs(self) -> Floats:
        """Classification: rows x classes."""
        return np.exp(self.log_probs)

    @cached_property
    def confidence(self) -> Floats:
        """Classification: the greatest probability of each row."""
        return np.exp(self.log_probs.max(axis=1))

    @cached_property
    def label(self) -> NDArray[np.int64]:
        """Classification: the class of the greatest probability; ties go to the lowest class."""
        return self.log_probs.argmax(axis=1)

    def correct(self, y: NDArray[Any]) -> NDArray[np.bool_]:
        """Classification: whether the class of each row is the true one. A prediction that is NaN is wrong.

        Args:
            y: The true labels, rows.

        Returns:
            One truth value for each row.
        """
        return (self.label == y) & ~np.isnan(self.confidence)

    @cached_property
    def means(self) -> Floats:
        """Regression: the mean of each component, rows x N."""
        return np.split(np.asarray(self.values, np.float64), 2, axis=1)[0]

    @cached_property
    def log_precisions(self) -> Floats:
        """Regression: the log-precision of each component, rows x N."""
        return np.split(np.asarray(self.values, np.float64), 2, axis=1)[1]

    @cached_property
    def mean(self) -> Floats:
        """Regression: the mean of the mixture."""
        return self.means.mean(axis=1)

    @cached_property
    def sd(self) -> Floats:
        """Regression: the standard deviation of the mixture."""
        return np.sqrt(np.exp(-self.log_precisions).mean(axis=1) + self.means.var(axis=1))

    def log_density(self, y: NDArray[Any]) -> Floats:
        """Regression: log (1/N) sum_n p_n(y) of each row.

        Args:
            y: The target of each row.

        Returns:
            One number for each row. p_n is N(mean_n, 1/gamma_n), or the model's own density if that was given.
        """
        if self.own_log_densities is None:
            gap = (y[:, None] - self.means) ** 2
            each = 0.5 * (self.log_precisions - math.log(2 * math.pi) - np.exp(self.log_precisions) * gap)
        else:
            each = np.asarray(self.own_log_densities, np.float64)
        top = each.max(axis=1)
        if self.own_log_densities is not None:  # a density that is zero at every particle gives minus infinity
            top = np.where(np.isneginf(top), 0.0, top)
            with np.errstate(divide="ignore"):
                return top + np.log(np.mean(np.exp(each - top[:, None]), axis=1))
        return top + np.log(np.mean(np.exp(each - top[:, None]), axis=1))

    def checked(self, y: ArrayLike) -> NDArray[Any]:
        """The labels (int64) or targets (float64) of these rows, once they are known to fit the predictions.

        Args:
            y: One integer label, or one standardised target, for each row.

        Returns:
            ``y`` as an array of the type that metrics get.

        Raises:
            ValueError: There are no rows, the shapes do not fit, or a label is no class.
        """
        if self.task == REGRESSION:
            return self._checked_targets(y)
        log_p, classes = self.log_probs, np.asarray(y)
        if log_p.ndim != 2 or classes.shape != log_p.shape[:1] or not log_p.size:
            raise ValueError(
                f"expected log_probs (rows x classes) and labels (rows,), got shapes {log_p.shape} and {classes.shape}"
            )
        if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= log_p.shape[1]:
            raise ValueError(f"expected integer labels in 0..{log_p.shape[1] - 1}, got {np.unique(classes)[:10]}")
        return classes.astype(np.int64)

    def _checked_targets(self, y: ArrayLike) -> Floats:
        target, shape = np.asarray(y, np.float64), np.shape(self.values)
        if len(shape) != 2 or target.shape != shape[:1] or not len(target):
            raise ValueError(f"expected predictions (rows x 2N) and y (rows,), got shapes {shape} and {target.shape}")
        return target


def mixture_moments(out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the Gaussian mixture over particles (regression)."""
    prediction = Prediction(REGRESSION, out)
    return prediction.mean, prediction.sd


def mixture_log_density(out: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log (1/N) sum_n N(y; mean_n, 1/gamma_n)."""
    return Prediction(REGRESSION, out).log_density(y)
