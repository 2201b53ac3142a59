"""Fedstein on Flower: the same round loop, with every client in a process of its own, wherever that is."""
