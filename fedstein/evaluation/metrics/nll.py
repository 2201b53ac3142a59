"""NLL: the mean negative log of what was predicted for the truth, in nats.

Regression: of the target in its original units, whose log-density is smaller than that of the standardised target by
log(target_scale). A model with a log-density of its own (counts) is judged by that, any other by the mixture of
Gaussians with its moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedstein.evaluation.metrics.base import ROWS, Metric, Sums
from fedstein.evaluation.prediction import CLASSIFICATION, REGRESSION, Prediction

NLL, LOG_DENSITY = "nll", "log_density"  # the sum of each task


def _zero(task: str) -> Sums:
    return {NLL if task == CLASSIFICATION else LOG_DENSITY: np.zeros(())}


def _update(prediction: Prediction, y: NDArray[Any]) -> Mapping[str, ArrayLike]:
    if prediction.task == CLASSIFICATION:
        return {NLL: -prediction.log_probs[np.arange(len(y)), y].sum()}
    return {LOG_DENSITY: prediction.log_density(y).sum()}


def _result(sums: Mapping[str, Any], target_scale: float) -> float:
    rows = float(sums[ROWS])
    return float(sums[NLL] / rows if NLL in sums else np.log(target_scale) - sums[LOG_DENSITY] / rows)


def _implausible(sums: Mapping[str, Any]) -> str:
    return "" if NLL not in sums or sums[NLL] >= -1e-6 else "expected an NLL from 0 on"


nll = Metric(
    name="nll",
    about="mean negative log-likelihood of the truth, in nats",
    tasks=(CLASSIFICATION, REGRESSION),
    zero=_zero,
    update=_update,
    result=_result,
    implausible=_implausible,
)
