"""Selection schemes: one file each; the registry is a plain dict."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedstein.selection.base import Draw, Scheme
from fedstein.selection.draws import DRAWS, Rule, proportional
from fedstein.selection.hip import hip
from fedstein.selection.innovation import innovation
from fedstein.selection.ksd import ksd
from fedstein.selection.random import random
from fedstein.selection.round_robin import ORDERS, round_robin


class SchemeInfo(NamedTuple):
    """How ``selection.kind`` is built, and its settings beyond ``per_round`` with their defaults."""

    build: Callable[..., Scheme]
    settings: dict[str, Any]
    about: str
    sites: tuple[str, ...] = ()  # the kinds of sites it needs; empty: any
    scores: bool = False  # whether a report is the score of the client's likelihood at the particles


# Settings of the schemes that ask; max_ratio 0 and max_probability 1 leave the reports and the law as they are.
ASKING = {"pool": 0, "report_rows": 0, "max_ratio": 100.0, "max_probability": 1.0}
SCHEMES: dict[str, SchemeInfo] = {
    "round_robin": SchemeInfo(round_robin, {"order": "given"}, "the clients in turn; asks nobody"),
    "random": SchemeInfo(random, {}, "every client with the same probability; asks nobody"),
    "ksd": SchemeInfo(
        ksd,
        {"draw": "proportional", **ASKING},
        "kernelized Stein discrepancy; a scalar from each candidate",
    ),
    "hip": SchemeInfo(
        hip,
        {"draw": "proportional", **ASKING},
        "Hilbert inner product; a score array from each candidate",
        scores=True,
    ),
    "innovation": SchemeInfo(
        innovation,
        {"draw": "pass", **ASKING},
        "how much a client's likelihood disagrees with its own site; a scalar from each candidate",
        ("curvature",),
    ),
}

__all__ = [
    "DRAWS",
    "ORDERS",
    "SCHEMES",
    "Draw",
    "Rule",
    "Scheme",
    "SchemeInfo",
    "hip",
    "innovation",
    "ksd",
    "proportional",
    "random",
    "round_robin",
]
