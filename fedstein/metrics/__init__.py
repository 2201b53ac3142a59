"""What a prediction is worth: accuracy, NLL, Brier, ECE, MCE and RMSE, in NumPy float64."""

from fedstein.metrics.scores import BINS, METRICS, Metrics, classification, regression, reliability
from fedstein.metrics.tail import evaluated, tail

__all__ = ["BINS", "METRICS", "Metrics", "classification", "evaluated", "regression", "reliability", "tail"]
