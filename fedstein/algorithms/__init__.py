"""Algorithms: one file each behind one contract; the registry is a plain dict."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedstein.algorithms.base import Algorithm, Arrays
from fedstein.algorithms.dsvgd import dsvgd
from fedstein.algorithms.fedavg import fedavg
from fedstein.algorithms.parallel_dsvgd import PRIORS, parallel_dsvgd
from fedstein.algorithms.parallel_sites import parallel_sites
from fedstein.algorithms.pooled_svgd import pooled_svgd
from fedstein.models.base import Model
from fedstein.sites.base import Site


class AlgorithmInfo(NamedTuple):
    """How ``algorithm.kind`` is built, and its settings with their defaults."""

    build: Callable[..., Algorithm]
    settings: dict[str, Any]
    everybody: bool  # whether all clients train in a round unless selection.per_round says otherwise
    about: str
    sites: tuple[str, ...]  # the kinds of sites it works with, its usual one first
    schemes: tuple[str, ...] = ()  # the schemes it works with; empty: all
    pooled: bool = False  # whether one client holds everybody's rows


def parallel(model: Model, site: Site, **settings: Any) -> Algorithm:
    """Parallel DSVGD as the sites allow it: by the product of uploaded KDEs, or by sites that add up."""
    return (parallel_sites if site.shared else parallel_dsvgd)(model, site, **settings)


STEPS = {"particles": 20, "local_steps": 10, "batch_size": 100, "temperature": 1.0}

ALGORITHMS: dict[str, AlgorithmInfo] = {
    "dsvgd": AlgorithmInfo(
        dsvgd,
        STEPS,
        False,
        "distributed SVGD: the selected client moves the global particles",
        ("curvature", "particles"),
    ),
    "parallel_dsvgd": AlgorithmInfo(
        parallel,
        {**STEPS, "prior": "divided"},
        True,
        "several clients train from the same particles; the server puts their work together",
        ("curvature", "particles"),
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
    "parallel_sites",
    "pooled_svgd",
]
