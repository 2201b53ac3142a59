"""Calibration errors over equal-width bins of the top probability: ECE, MCE and the reliability diagram.

A bin is (low, high]: a confidence on an edge belongs to the bin below it, 1 to the last and 0 to the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedstein.evaluation.metrics.base import ROWS, Metric, are_counts, zeros
from fedstein.evaluation.prediction import CLASSIFICATION, Prediction

BINS = 15


def binned(prediction: Prediction, y: NDArray[Any], bins: int = BINS) -> Mapping[str, ArrayLike]:
    """The sums of each bin.

    Args:
        prediction: Of a classification.
        y: The labels.
        bins: How many bins there are from 0 to 1.

    Returns:
        Each of shape (bins,): ``bin_rows``, and summed over the rows of a bin ``bin_confidence`` and ``bin_correct``.
    """
    edges = np.arange(bins + 1) / bins
    # "left": the first edge >= confidence closes the bin. The clip takes in 0, and 1 + rounding.
    which = np.clip(np.searchsorted(edges, prediction.confidence, side="left") - 1, 0, bins - 1)
    return {
        "bin_rows": np.bincount(which, minlength=bins),
        "bin_confidence": np.bincount(which, weights=prediction.confidence, minlength=bins),
        "bin_correct": np.bincount(which, weights=prediction.correct(y), minlength=bins),
    }


def _gaps(sums: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for each non-empty bin the gap between confidence and correctness, summed over its rows, and its rows."""
    filled = sums["bin_rows"] > 0
    return np.abs(sums["bin_correct"][filled] - sums["bin_confidence"][filled]), sums["bin_rows"][filled]


def _ece(sums: Mapping[str, Any], target_scale: float) -> float:
    return float(_gaps(sums)[0].sum() / float(sums[ROWS]))


def _mce(sums: Mapping[str, Any], target_scale: float) -> float:
    gap, rows = _gaps(sums)
    return float((gap / rows).max())


def _implausible(sums: Mapping[str, Any]) -> str:
    rows, confidence, correct = (np.asarray(sums[name]) for name in ("bin_rows", "bin_confidence", "bin_correct"))
    sound = are_counts(rows, correct) and rows.sum() == sums[ROWS]
    sound = sound and ("correct" not in sums or correct.sum() == sums["correct"])
    sound = sound and (correct <= rows).all() and (confidence >= 0).all() and (confidence <= rows * (1 + 1e-6)).all()
    return "" if sound else "expected bins that add up to the rows"


def reliability_of(sums: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of a reliability diagram, one for each bin.

    Args:
        sums: Sums over rows, such as ``binned`` gives.

    Returns:
        ``{low, high, count, confidence, accuracy}`` of each bin, the last two being means over its rows, None if it
        is empty; None if there are no bins, as in regression.
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


ece = Metric(
    name="ece",
    about=f"expected calibration error over {BINS} bins of the top probability",
    tasks=(CLASSIFICATION,),
    zero=zeros(bin_rows=(BINS,), bin_confidence=(BINS,), bin_correct=(BINS,)),
    update=binned,
    result=_ece,
    implausible=_implausible,
)
mce = ece._replace(name="mce", about=f"greatest calibration error of {BINS} bins of the top probability", result=_mce)
