"""The built-in metrics of predictive distributions that are already averaged over the particles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedstein.evaluation.metrics.base import Metrics, Sums
from fedstein.evaluation.metrics.calibration import BINS, binned, reliability_of
from fedstein.evaluation.metrics.sums import metrics_of, sums_over
from fedstein.evaluation.prediction import CLASSIFICATION, REGRESSION, Floats, Prediction


class KnownDensity(Prediction):
    """A prediction of which only the mean and the log-density of each target are known."""

    def __init__(self, log_density: ArrayLike, mean: ArrayLike):
        known, mu = np.asarray(log_density, np.float64), np.asarray(mean, np.float64)
        super().__init__(REGRESSION, mu)
        self.__dict__.update(known=known, mean=mu)  # the instance is frozen; ``mean`` is cached as if worked out

    def log_density(self, y: ArrayLike) -> Floats:
        return self.__dict__["known"]

    def checked(self, y: ArrayLike) -> Floats:
        log_d, mu, target = self.__dict__["known"], self.mean, np.asarray(y, np.float64)
        if not log_d.shape == mu.shape == target.shape or target.ndim != 1 or not len(target):
            raise ValueError(
                f"expected log_density, mean and y of one shape (rows,), got {log_d.shape}, {mu.shape}, {target.shape}"
            )
        return target


def classification_sums(log_probs: ArrayLike, labels: ArrayLike) -> Sums:
    """The sums of log-probabilities (rows x classes) and integer labels, for the built-in metrics.

    Args:
        log_probs: Rows x classes.
        labels: The true labels, integers, rows.

    Returns:
        The sums by name; those of several sets of rows add up.
    """
    return sums_over(Prediction(CLASSIFICATION, log_probs), labels)


def regression_sums(log_density: ArrayLike, mean: ArrayLike, y: ArrayLike) -> Sums:
    """The sums of the predictive log-density of each standardised y, and of its mean, for the built-in metrics.

    Args:
        log_density: The predictive log-density of each standardised target, rows.
        mean: The predictive mean, rows.
        y: The standardised targets, rows.

    Returns:
        The sums by name; those of several sets of rows add up.
    """
    return sums_over(KnownDensity(log_density, mean), y)


def classification(log_probs: ArrayLike, labels: ArrayLike) -> Metrics:
    """Score log-probabilities (rows x classes) against integer labels.

    Args:
        log_probs: Rows x classes.
        labels: The true labels, integers, rows.

    Returns:
        Accuracy, NLL, Brier score, ECE and MCE by name.
    """
    return metrics_of(classification_sums(log_probs, labels))


def reliability(log_probs: ArrayLike, labels: ArrayLike, bins: int = BINS) -> list[dict[str, Any]]:
    """The reliability diagram of log-probabilities against integer labels.

    Args:
        log_probs: Rows x classes.
        labels: The true labels, integers, rows.
        bins: The number of bins of equal width.

    Returns:
        One entry for each bin, with its count, mean confidence and accuracy.
    """
    prediction = Prediction(CLASSIFICATION, log_probs)
    return reliability_of(binned(prediction, prediction.checked(labels), bins)) or []


def regression(log_density: ArrayLike, mean: ArrayLike, y: ArrayLike, target_scale: float) -> Metrics:
    """RMSE and NLL per row in original units, from predictions of the standardised target.

    Args:
        log_density: The predictive log-density of each standardised target, rows.
        mean: The predictive mean, rows.
        y: The standardised targets, rows.
        target_scale: The standard deviation by which targets were divided.

    Returns:
        RMSE and NLL by name.
    """
    return metrics_of(regression_sums(log_density, mean, y), target_scale)
