"""RMSE: the root of the mean squared error of the predictive mean, in the target's original units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedstein.evaluation.metrics.base import ROWS, Metric, zeros
from fedstein.evaluation.prediction import REGRESSION, Prediction


def _update(prediction: Prediction, y: NDArray[Any]) -> Mapping[str, ArrayLike]:
    return {"squared_error": ((prediction.mean - y) ** 2).sum()}


def _result(sums: Mapping[str, Any], target_scale: float) -> float:
    return float(target_scale * np.sqrt(sums["squared_error"] / float(sums[ROWS])))


def _implausible(sums: Mapping[str, Any]) -> str:
    return "" if sums["squared_error"] >= 0 else "expected a sum of squares from 0 on"


rmse = Metric(
    name="rmse",
    about="root of the mean squared error, in the units of the target",
    tasks=(REGRESSION,),
    zero=zeros("squared_error"),
    update=_update,
    result=_result,
    implausible=_implausible,
)
