"""How good predictions are: metrics and predictive distributions."""
