"""Selection schemes: one file each; the registry is a plain dict."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedstein.selection.base import Draw, Scheme, proportional
from fedstein.selection.hip import hip
from fedstein.selection.ksd import ksd
from fedstein.selection.random import random
from fedstein.selection.round_robin import ORDERS, round_robin


class SchemeInfo(NamedTuple):
    """How ``selection.kind`` is built, and its settings beyond ``per_round`` with their defaults."""

    build: Callable[..., Scheme]
    settings: dict[str, Any]
    about: str
    sites: tuple[str, ...] = ()  # the kinds of sites it needs; empty: any


SCHEMES: dict[str, SchemeInfo] = {
    "round_robin": SchemeInfo(round_robin, {"order": "given"}, "the clients in turn; asks nobody"),
    "random": SchemeInfo(random, {}, "every client with the same probability; asks nobody"),
    "ksd": SchemeInfo(ksd, {"pool": 0, "report_rows": 0}, "kernelized Stein discrepancy; a scalar from each candidate"),
    "hip": SchemeInfo(hip, {"pool": 0, "report_rows": 0}, "Hilbert inner product; a score array from each candidate"),
}

__all__ = ["ORDERS", "SCHEMES", "Draw", "Scheme", "SchemeInfo", "hip", "ksd", "proportional", "random", "round_robin"]
