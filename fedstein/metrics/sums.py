"""What a metric is made of: sums over rows. Those of several clients add up, and say no more of a row than that.

Every sum is a float64 array of a fixed shape, so that a server can check what a client sent. Nothing here clips: a
true class of probability zero gives an infinite NLL, a NaN stays a NaN. Whoever writes a file turns what is not
finite into null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Metrics = dict[str, float | None]
Sums = dict[str, NDArray[np.float64]]
METRICS = ("accuracy", "nll", "brier", "ece", "mce", "rmse")
BINS = 15
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "classification": {
        "rows": (),
        "correct": (),
        "nll": (),
        "brier": (),
        "bin_rows": (BINS,),
        "bin_confidence": (BINS,),  # summed over the rows of the bin
        "bin_correct": (BINS,),
    },
    "regression": {"rows": (), "log_density": (), "squared_error": ()},  # of the standardised target
}


def sum_shapes(task: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """{name: (shape, dtype)} of a client's sums."""
    return {name: (shape, "float64") for name, shape in SHAPES[task].items()}


def no_sums(task: str) -> Sums:
    """The sums over no rows."""
    return {name: np.zeros(shape) for name, shape in SHAPES[task].items()}


def implausible_sums(sums: Mapping[str, Any]) -> str:
    """Why these cannot be the sums over anybody's rows; empty where they can. An infinite loss can be real."""
    counts = [np.atleast_1d(sums[name]) for name in ("rows", "correct", "bin_rows", "bin_correct") if name in sums]
    whole = all(((count >= 0) & (count == np.floor(count)) & (count < 2**53)).all() for count in counts)
    if not whole or any(np.isnan(array).any() for array in sums.values()):
        return "expected counts from 0 on and sums without NaN"
    if "bin_rows" not in sums:
        return "" if sums["squared_error"] >= 0 else "expected a sum of squares"
    binned, confidence = np.asarray(sums["bin_rows"]), np.asarray(sums["bin_confidence"])
    levels = binned.sum() == sums["rows"] and np.sum(sums["bin_correct"]) == sums["correct"]
    within = (np.asarray(sums["bin_correct"]) <= binned).all() and (confidence <= binned * (1 + 1e-6)).all()
    sane = levels and within and (confidence >= 0).all() and sums["nll"] >= -1e-6 and sums["brier"] >= 0
    return "" if sane else "expected bins that add up to the rows, and losses from 0 on"


def add_sums(task: str, each: Iterable[Mapping[str, Any]]) -> Sums:
    """The sums over everybody's rows, added in the order given."""
    total = no_sums(task)
    for sums in each:
        total = {name: total[name] + np.asarray(sums[name], np.float64) for name in total}
    return total


def classification_sums(log_probs: ArrayLike, labels: ArrayLike, bins: int = BINS) -> Sums:
    """Of log-probabilities (rows x classes) and integer labels. Ties go to the lowest class; NaN counts as wrong.

    A bin is (low, high]: a confidence on an edge belongs to the bin below it, 1 to the last and 0 to the first.
    """
    log_p, classes = _checked(log_probs, labels)
    rows = np.arange(len(classes))
    true = np.zeros_like(log_p)
    true[rows, classes] = 1.0
    confidence = np.exp(log_p.max(axis=1))
    correct = (log_p.argmax(axis=1) == classes) & ~np.isnan(confidence)
    edges = np.arange(bins + 1) / bins
    # "left": the first edge >= confidence closes the bin. The clip takes in 0, and 1 + rounding.
    which = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    found: dict[str, Any] = {
        "rows": len(classes),
        "correct": correct.sum(),
        "nll": -log_p[rows, classes].sum(),
        "brier": ((np.exp(log_p) - true) ** 2).sum(axis=1).sum(),
        "bin_rows": np.bincount(which, minlength=bins),
        "bin_confidence": np.bincount(which, weights=confidence, minlength=bins),
        "bin_correct": np.bincount(which, weights=correct, minlength=bins),
    }
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


def regression_sums(log_density: ArrayLike, mean: ArrayLike, y: ArrayLike) -> Sums:
    """Of the predictive log-density of each standardised y, and of its mean."""
    log_d, mu, target = (np.asarray(a, dtype=np.float64) for a in (log_density, mean, y))
    if not log_d.shape == mu.shape == target.shape or target.ndim != 1 or not len(target):
        raise ValueError(
            f"expected log_density, mean and y of one shape (rows,), got {log_d.shape}, {mu.shape}, {target.shape}"
        )
    found = {"rows": len(target), "log_density": log_d.sum(), "squared_error": ((mu - target) ** 2).sum()}
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


def metrics_of(sums: Mapping[str, Any], target_scale: float = 1.0) -> Metrics:
    """The metrics, each a mean over rows; those that the task does not have, and all of no rows, are None.

    NLL is in nats; Brier is the squared error summed over classes (0 to 2); ECE and MCE use equal-width bins of the top
    probability. Regression: NLL and RMSE in original units, the log-density of the original y being smaller by
    log(target_scale).
    """
    scores: Metrics = dict.fromkeys(METRICS)
    rows = float(sums["rows"])
    if not rows:
        return scores
    if "squared_error" in sums:
        scores["nll"] = float(np.log(target_scale) - sums["log_density"] / rows)
        scores["rmse"] = float(target_scale * np.sqrt(sums["squared_error"] / rows))
        return scores
    filled = sums["bin_rows"] > 0
    gap = np.abs(sums["bin_correct"][filled] - sums["bin_confidence"][filled])  # sums over rows, not means
    scores["accuracy"] = float(sums["correct"] / rows)
    scores["nll"] = float(sums["nll"] / rows)
    scores["brier"] = float(sums["brier"] / rows)
    scores["ece"] = float(gap.sum() / rows)
    scores["mce"] = float((gap / sums["bin_rows"][filled]).max())
    return scores


def reliability_of(sums: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Rows {low, high, count, confidence, accuracy} of a reliability diagram, one a bin; regression has none.

    `confidence` and `accuracy` are means over the rows of the bin, None where it is empty.
    """
    if "bin_rows" not in sums:
        return None
    bins = len(sums["bin_rows"])
    return [
        {
            "low": i / bins,
            "high": (i + 1) / bins,
            "count": int(n),
            "confidence": float(sums["bin_confidence"][i] / n) if n else None,
            "accuracy": float(sums["bin_correct"][i] / n) if n else None,
        }
        for i, n in enumerate(sums["bin_rows"])
    ]


def _checked(log_probs: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    log_p, classes = np.asarray(log_probs, dtype=np.float64), np.asarray(labels)
    if log_p.ndim != 2 or classes.shape != log_p.shape[:1] or not log_p.size:
        raise ValueError(
            f"expected log_probs (rows x classes) and labels (rows,), got shapes {log_p.shape} and {classes.shape}"
        )
    if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= log_p.shape[1]:
        raise ValueError(f"expected integer labels in 0..{log_p.shape[1] - 1}, got {np.unique(classes)[:10]}")
    return log_p, classes.astype(np.int64)
