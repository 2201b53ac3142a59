"""Algorithms: one file each behind one contract; the registry is a plain dict."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedstein.algorithms.base import Algorithm, Arrays
from fedstein.algorithms.dsvgd import dsvgd


class AlgorithmInfo(NamedTuple):
    """How ``algorithm.kind`` is built, and its settings with their defaults."""

    build: Callable[..., Algorithm]
    settings: dict[str, Any]
    about: str


ALGORITHMS: dict[str, AlgorithmInfo] = {
    "dsvgd": AlgorithmInfo(
        dsvgd,
        {"particles": 20, "local_steps": 10, "distill_steps": 10, "batch_size": 100, "temperature": 1.0},
        "distributed SVGD: the selected client moves the global particles",
    ),
}

__all__ = ["ALGORITHMS", "Algorithm", "AlgorithmInfo", "Arrays", "dsvgd"]
