"""Predictive distributions, and the metrics that score them."""
