"""Algorithms: one file each behind one contract; the registry is a plain dict."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedstein.algorithms.base import Algorithm, Arrays
from fedstein.algorithms.dsvgd import dsvgd
from fedstein.algorithms.parallel_dsvgd import PRIORS, parallel_dsvgd


class AlgorithmInfo(NamedTuple):
    """How ``algorithm.kind`` is built, and its settings with their defaults."""

    build: Callable[..., Algorithm]
    settings: dict[str, Any]
    everybody: bool  # whether all clients train in a round unless selection.per_round says otherwise
    about: str


STEPS = {"particles": 20, "local_steps": 10, "distill_steps": 10, "batch_size": 100, "temperature": 1.0}

ALGORITHMS: dict[str, AlgorithmInfo] = {
    "dsvgd": AlgorithmInfo(
        dsvgd,
        STEPS,
        False,
        "distributed SVGD: the selected client moves the global particles",
    ),
    "parallel_dsvgd": AlgorithmInfo(
        parallel_dsvgd,
        {**STEPS, "prior": "divided"},
        True,
        "clients upload local particles; the server moves the global ones",
    ),
}

__all__ = ["ALGORITHMS", "PRIORS", "Algorithm", "AlgorithmInfo", "Arrays", "dsvgd", "parallel_dsvgd"]
