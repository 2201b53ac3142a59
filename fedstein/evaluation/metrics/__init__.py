"""Metrics of predictions. Each metric, or pair of metrics with the same sums, is one file, in NumPy float64.

A metric of your own is a ``Metric``, named in ``evaluate.metrics`` by its import path or registered in ``METRICS``.
"""

from fedstein.evaluation.metrics.base import Metric, Metrics, Sums, add, are_counts, zeros
from fedstein.evaluation.metrics.calibration import BINS, reliability_of
from fedstein.evaluation.metrics.registry import (
    BUILT_IN,
    METRICS,
    NAMES,
    RESERVED,
    check_metrics,
    choose_metrics,
    no_values,
)
from fedstein.evaluation.metrics.scores import (
    classification,
    classification_sums,
    regression,
    regression_sums,
    reliability,
)
from fedstein.evaluation.metrics.sums import (
    add_sums,
    implausible_sums,
    metrics_of,
    no_sums,
    sum_shapes,
    sums_over,
)
from fedstein.evaluation.metrics.tail import evaluated, tail
from fedstein.evaluation.prediction import Prediction

__all__ = [
    "BINS",
    "BUILT_IN",
    "METRICS",
    "NAMES",
    "RESERVED",
    "Metric",
    "Metrics",
    "Prediction",
    "Sums",
    "add",
    "add_sums",
    "are_counts",
    "check_metrics",
    "choose_metrics",
    "classification",
    "classification_sums",
    "evaluated",
    "implausible_sums",
    "metrics_of",
    "no_sums",
    "no_values",
    "regression",
    "regression_sums",
    "reliability",
    "reliability_of",
    "sum_shapes",
    "sums_over",
    "tail",
    "zeros",
]
