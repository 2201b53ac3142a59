"""The calibration temperature: the T for which softmax(log p / T) has the least NLL, from sums over rows.

Particles of networks are often underconfident: their averaged probabilities p are too even, and T below 1 sharpens
them. Every row adds its NLL at each temperature of a fixed grid, evenly spaced in log T. The sums of clients add up,
and the lowest point of a parabola through the three best points of the grid is the temperature. Guo et al. (2017) fit
it on rows in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedstein.evaluation.metrics.base import Metric, zeros
from fedstein.evaluation.prediction import CLASSIFICATION, Prediction

GRID = np.exp(np.linspace(np.log(0.25), np.log(4.0), 33))


def tempered(log_probs: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Compute log softmax(log p / T).

    Args:
        log_probs: Log-probabilities, rows x classes.
        temperature: T; 1 changes nothing.

    Returns:
        Log-probabilities of the same shape. The order of the classes of a row stays.
    """
    scaled = np.asarray(log_probs, np.float64) / temperature
    top = scaled.max(axis=1, keepdims=True)
    return np.asarray(scaled - top - np.log(np.sum(np.exp(scaled - top), axis=1, keepdims=True)))


def nll_on_grid(prediction: Prediction, y: NDArray[Any]) -> Mapping[str, ArrayLike]:
    """The sum over rows of the NLL at each temperature of the grid."""
    own = np.arange(len(y)), np.asarray(y)
    return {"nll_at": np.array([-tempered(prediction.log_probs, t)[own].sum() for t in GRID])}


def least(sums: Mapping[str, Any], target_scale: float = 1.0) -> float | None:
    """The temperature of the least NLL; None if the sums are not finite."""
    values = np.asarray(sums["nll_at"], np.float64)
    if not np.isfinite(values).all():
        return None
    best = int(np.argmin(values))
    if best in (0, len(GRID) - 1):
        return float(GRID[best])
    left, middle, right = values[best - 1 : best + 2]
    bend = left - 2 * middle + right
    shift = 0.5 * (left - right) / bend if bend > 0 else 0.0
    step = np.log(GRID[1] / GRID[0])
    return float(np.exp(np.log(GRID[best]) + shift * step))


def _implausible(sums: Mapping[str, Any]) -> str:
    return "" if (np.asarray(sums["nll_at"]) >= 0).all() else "expected sums of losses that are not negative"


temperature = Metric(
    name="temperature",
    about="the T for which softmax(log p / T) has the least NLL on these rows; no score",
    tasks=(CLASSIFICATION,),
    zero=zeros(nll_at=(len(GRID),)),
    update=nll_on_grid,
    result=least,
    implausible=_implausible,
)
