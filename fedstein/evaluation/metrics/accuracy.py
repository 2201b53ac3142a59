"""Accuracy: the share of rows whose most probable class is the true one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike, NDArray

from fedstein.evaluation.metrics.base import ROWS, Metric, are_counts, zeros
from fedstein.evaluation.prediction import CLASSIFICATION, Prediction


def _update(prediction: Prediction, y: NDArray[Any]) -> Mapping[str, ArrayLike]:
    return {"correct": prediction.correct(y).sum()}


def _result(sums: Mapping[str, Any], target_scale: float) -> float:
    return float(sums["correct"] / float(sums[ROWS]))


def _implausible(sums: Mapping[str, Any]) -> str:
    sound = are_counts(sums["correct"]) and sums["correct"] <= sums[ROWS]
    return "" if sound else "expected a count of correct rows from 0 to the number of rows"


accuracy = Metric(
    name="accuracy",
    about="share of rows whose most probable class is the true one",
    tasks=(CLASSIFICATION,),
    zero=zeros("correct"),
    update=_update,
    result=_result,
    larger_is_better=True,
    implausible=_implausible,
)
