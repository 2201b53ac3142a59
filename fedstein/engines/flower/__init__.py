"""Fedstein on Flower: real processes, real network. The only place that imports flwr."""
