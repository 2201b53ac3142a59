"""What privacy costs: accuracy against epsilon, and whether intervals still cover."""
