"""Scores of predictive distributions that are already averaged over the particles: metrics of the sums over rows."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from fedstein.metrics.sums import (
    BINS,
    Metrics,
    classification_sums,
    metrics_of,
    regression_sums,
    reliability_of,
)


def classification(log_probs: ArrayLike, labels: ArrayLike) -> Metrics:
    """Score log-probabilities (rows x classes) against integer labels."""
    return metrics_of(classification_sums(log_probs, labels))


def reliability(log_probs: ArrayLike, labels: ArrayLike, bins: int = BINS) -> list[dict[str, Any]]:
    """The reliability diagram of log-probabilities against integer labels."""
    return reliability_of(classification_sums(log_probs, labels, bins)) or []


def regression(log_density: ArrayLike, mean: ArrayLike, y: ArrayLike, target_scale: float) -> Metrics:
    """RMSE and NLL per row in original units, from predictions of the standardised target."""
    return metrics_of(regression_sums(log_density, mean, y), target_scale)
