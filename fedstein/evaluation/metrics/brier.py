"""Brier score: the squared error of the probabilities, summed over classes (0 to 2), mean over rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedstein.evaluation.metrics.base import ROWS, Metric, zeros
from fedstein.evaluation.prediction import CLASSIFICATION, Prediction


def _update(prediction: Prediction, y: NDArray[Any]) -> Mapping[str, ArrayLike]:
    true = np.zeros_like(prediction.probs)
    true[np.arange(len(y)), y] = 1.0
    return {"brier": ((prediction.probs - true) ** 2).sum(axis=1).sum()}


def _result(sums: Mapping[str, Any], target_scale: float) -> float:
    return float(sums["brier"] / float(sums[ROWS]))


def _implausible(sums: Mapping[str, Any]) -> str:
    return "" if sums["brier"] >= 0 else "expected a Brier score from 0 on"


brier = Metric(
    name="brier",
    about="squared error of the probabilities, summed over classes",
    tasks=(CLASSIFICATION,),
    zero=zeros("brier"),
    update=_update,
    result=_result,
    implausible=_implausible,
)
