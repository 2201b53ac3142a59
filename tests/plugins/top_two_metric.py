"""A metric: the share of rows whose true class is among the two most probable ones."""

import numpy as np

from fedstein.evaluation.metrics import Metric, zeros

TOP_TWO = Metric(
    name="top_two",
    about="share of rows whose true class is among the two most probable",
    tasks=("classification",),
    zero=zeros("top_two"),
    update=lambda prediction, y: {
        "top_two": (np.argsort(prediction.log_probs, axis=1)[:, -2:] == np.asarray(y)[:, None]).any(axis=1).sum()
    },
    result=lambda sums, target_scale: float(sums["top_two"] / sums["rows"]),
    larger_is_better=True,
)
