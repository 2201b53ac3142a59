"""Algorithms: one file each behind one contract; the registry is a plain dict."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedstein.algorithms.base import Algorithm, Arrays
from fedstein.algorithms.dsvgd import dsvgd
from fedstein.algorithms.fedavg import fedavg
from fedstein.algorithms.parallel_dsvgd import PRIORS, parallel_dsvgd
from fedstein.algorithms.pooled_svgd import pooled_svgd


class AlgorithmInfo(NamedTuple):
    """How ``algorithm.kind`` is built, and its settings with their defaults."""

    build: Callable[..., Algorithm]
    settings: dict[str, Any]
    everybody: bool  # whether all clients train in a round unless selection.per_round says otherwise
    about: str
    sites: tuple[str, ...]  # the kinds of sites it works with, its usual one first
    schemes: tuple[str, ...] = ()  # the schemes it works with; empty: all
    pooled: bool = False  # whether one client holds everybody's rows


STEPS = {"particles": 20, "local_steps": 10, "batch_size": 100, "temperature": 1.0}

ALGORITHMS: dict[str, AlgorithmInfo] = {
    "dsvgd": AlgorithmInfo(
        dsvgd,
        STEPS,
        False,
        "distributed SVGD: the selected client moves the global particles",
        ("particles", "curvature"),
    ),
    "parallel_dsvgd": AlgorithmInfo(
        parallel_dsvgd,
        {**STEPS, "prior": "divided"},
        True,
        "clients upload local particles; the server moves the global ones",
        ("particles",),
    ),
    "pooled_svgd": AlgorithmInfo(
        pooled_svgd,
        STEPS,
        False,
        "reference: SVGD on everybody's rows in one place",
        ("none",),
        ("round_robin",),
        pooled=True,
    ),
    "fedavg": AlgorithmInfo(
        fedavg,
        {**STEPS, "particles": 1},
        True,
        "reference: federated averaging, one network and no prior",
        ("none",),
        ("round_robin", "random"),
    ),
}

__all__ = [
    "ALGORITHMS",
    "PRIORS",
    "Algorithm",
    "AlgorithmInfo",
    "Arrays",
    "dsvgd",
    "fedavg",
    "parallel_dsvgd",
    "pooled_svgd",
]
