"""Scores of predictive distributions that are already averaged over the particles.

Nothing here clips: a true class of probability zero gives an infinite NLL, a NaN stays a NaN. Whoever writes a file
turns what is not finite into null.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Metrics = dict[str, float | None]
METRICS = ("accuracy", "nll", "brier", "ece", "mce", "rmse")
BINS = 15


def classification(log_probs: ArrayLike, labels: ArrayLike) -> Metrics:
    """Score log-probabilities (rows x classes) against integer labels; every metric is a mean over rows.

    NLL is in nats; Brier is the squared error summed over classes (0 to 2); ECE and MCE use 15 equal-width bins of the
    top probability, see `reliability`. Ties go to the lowest class; a row that holds a NaN counts as wrong.
    """
    log_p, labels = _checked(log_probs, labels)
    rows = np.arange(len(labels))
    true = np.zeros_like(log_p)
    true[rows, labels] = 1.0
    bins = _binned(log_p, labels, BINS)
    filled = bins.rows > 0
    gap = np.abs(bins.correct[filled] - bins.confidence[filled])  # sums over the rows of each bin, not means
    return {
        "accuracy": float(bins.correct.sum() / len(labels)),
        "nll": float(-log_p[rows, labels].mean()),
        "brier": float(((np.exp(log_p) - true) ** 2).sum(axis=1).mean()),
        "ece": float(gap.sum() / len(labels)),
        "mce": float((gap / bins.rows[filled]).max()),
        "rmse": None,
    }


def reliability(log_probs: ArrayLike, labels: ArrayLike, bins: int = BINS) -> list[dict[str, Any]]:
    """Rows {low, high, count, confidence, accuracy} of a reliability diagram, one for each equal-width bin.

    A bin is (low, high]: a confidence on an edge belongs to the bin below it, 1 to the last and 0 to the first.
    `confidence` and `accuracy` are means over the rows of the bin, None where it is empty.
    """
    log_p, labels = _checked(log_probs, labels)
    binned = _binned(log_p, labels, bins)
    return [
        {
            "low": i / bins,
            "high": (i + 1) / bins,
            "count": int(n),
            "confidence": float(binned.confidence[i] / n) if n else None,
            "accuracy": float(binned.correct[i] / n) if n else None,
        }
        for i, n in enumerate(binned.rows)
    ]


def regression(log_density: ArrayLike, mean: ArrayLike, y: ArrayLike, target_scale: float) -> Metrics:
    """RMSE and NLL per row in original units, from predictions of the standardised target.

    `log_density` is the predictive log-density of each standardised y; that of the original y is smaller by
    log(target_scale).
    """
    log_d, mu, target = (np.asarray(a, dtype=np.float64) for a in (log_density, mean, y))
    if not log_d.shape == mu.shape == target.shape or target.ndim != 1 or not len(target):
        raise ValueError(
            f"expected log_density, mean and y of one shape (rows,), got {log_d.shape}, {mu.shape}, {target.shape}"
        )
    scores: Metrics = dict.fromkeys(METRICS)
    scores["nll"] = float(np.log(target_scale) - log_d.mean())
    scores["rmse"] = float(target_scale * np.sqrt(np.mean((mu - target) ** 2)))
    return scores


class _Bins(NamedTuple):
    rows: NDArray[Any]
    confidence: NDArray[Any]  # summed over the rows of the bin
    correct: NDArray[Any]


def _binned(log_p: NDArray[np.float64], labels: NDArray[np.int64], bins: int) -> _Bins:
    confidence = np.exp(log_p.max(axis=1))
    correct = (log_p.argmax(axis=1) == labels) & ~np.isnan(confidence)
    edges = np.arange(bins + 1) / bins
    # "left": the first edge >= confidence closes the bin. The clip takes in 0, and 1 + rounding.
    which = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    return _Bins(
        np.bincount(which, minlength=bins),
        np.bincount(which, weights=confidence, minlength=bins),
        np.bincount(which, weights=correct, minlength=bins),
    )


def _checked(log_probs: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    log_p, classes = np.asarray(log_probs, dtype=np.float64), np.asarray(labels)
    if log_p.ndim != 2 or classes.shape != log_p.shape[:1] or not log_p.size:
        raise ValueError(
            f"expected log_probs (rows x classes) and labels (rows,), got shapes {log_p.shape} and {classes.shape}"
        )
    if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= log_p.shape[1]:
        raise ValueError(f"expected integer labels in 0..{log_p.shape[1] - 1}, got {np.unique(classes)[:10]}")
    return log_p, classes.astype(np.int64)
