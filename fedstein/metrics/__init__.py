"""What a prediction is worth: accuracy, NLL, Brier, ECE, MCE and RMSE, in NumPy float64, and the sums behind them."""

from fedstein.metrics.scores import classification, regression, reliability
from fedstein.metrics.sums import (
    BINS,
    METRICS,
    Metrics,
    Sums,
    add_sums,
    classification_sums,
    implausible_sums,
    metrics_of,
    no_sums,
    regression_sums,
    reliability_of,
    sum_shapes,
)
from fedstein.metrics.tail import evaluated, tail

__all__ = [
    "BINS",
    "METRICS",
    "Metrics",
    "Sums",
    "add_sums",
    "classification",
    "classification_sums",
    "evaluated",
    "implausible_sums",
    "metrics_of",
    "no_sums",
    "regression",
    "regression_sums",
    "reliability",
    "reliability_of",
    "sum_shapes",
    "tail",
]
