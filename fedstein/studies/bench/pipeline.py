"""The whole benchmark: its parts in order, and one document with their results."""

from __future__ import annotations

import platform
import statistics
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedstein.machine import cores, memory
from fedstein.studies.bench.goals import judge
from fedstein.studies.bench.rounds import PHASES, Rounds, measure_rounds
from fedstein.studies.bench.scaling import POOLED, Curve, measure_scaling
from fedstein.studies.bench.startup import Startup, measure_startup
from fedstein.studies.bench.steps import Steps, measure_steps
from fedstein.studies.bench.timing import OnCase, ratio

FORMAT = 2
PACKAGES = ("jax", "jaxlib", "numpy", "blackjax", "numpyro", "torch")


class Repeats:
    """The number of repeats of each part, large enough that one of them is undisturbed."""

    def __init__(self, quick: bool):
        self.steps, self.rounds, self.growth, self.startup = (3, 2, 2, 2) if quick else (15, 4, 5, 3)


def bench(quick: bool, threads: int, on_case: OnCase) -> dict[str, Any]:
    """Run the benchmark.

    Args:
        quick: Whether to measure fewer sizes with fewer repeats.
        threads: The number of XLA threads.
        on_case: Called with a line of progress.

    Returns:
        The content of ``bench.json``.
    """
    began, repeats = time.perf_counter(), Repeats(quick)
    steps = measure_steps(repeats.steps, on_case)
    rounds = measure_rounds((27,) if quick else (27, 120), repeats.rounds, quick, threads, on_case)
    curves = measure_scaling(repeats.growth, quick, threads, on_case)
    startup = measure_startup(repeats.startup, quick, threads, on_case)
    return document(quick, threads, steps, rounds, curves, startup, time.perf_counter() - began)


def document(
    quick: bool, threads: int, steps: Steps, rounds: Rounds, curves: list[Curve], startup: Startup, seconds: float
) -> dict[str, Any]:
    """Build the document from the results of the parts."""
    found: dict[str, Any] = {
        "format": FORMAT,
        "quick": quick,
        "machine": {**machine(), "threads": threads},
        "seconds": seconds,
        "steps": {name: timing.document() for name, timing in steps.times.items()},
        "rounds": [
            {
                "name": row.name,
                **{phase: statistics.median(row.phases[phase]) for phase in PHASES},
                **row.whole.document(),
                "products": rounds.products[row.name],
            }
            for row in rounds.rounds
        ],
        "growth": [
            {
                "name": curve.name,
                "axis": curve.axis,
                "sizes": curve.sizes,
                "times": [timing.document() for timing in curve.times],
                "exponent": curve.exponent,
            }
            for curve in curves
        ],
        "startup": startup_document(startup),
        "ratios": {name: each.document() for name, each in {**steps.ratios, **rounds.ratios}.items()},
    }
    peers = [found["ratios"].get(f"{peer} / Fedstein, BLR") for peer in ("BlackJAX", "NumPyro")]
    if all(peers):
        found["ratios"]["best peer / Fedstein, BLR"] = {
            key: min(peer[key] for peer in peers if peer) for key in ("min", "median")
        }
    pooled = next((curve for curve in curves if curve.name == POOLED), None)
    if pooled and {100, 10_000} <= set(pooled.sizes):
        few, many = (pooled.times[pooled.sizes.index(k)] for k in (100, 10_000))
        found["ratios"]["K = 10,000 / K = 100, pool 100"] = ratio(many, few).document()
    found["goals"] = [
        {
            "name": verdict.goal.name,
            "limit": verdict.goal.limit,
            "at_least": verdict.goal.at_least,
            "unit": verdict.goal.unit,
            "got": verdict.got,
            "median": verdict.middle,
            "reached": verdict.reached,
        }
        for verdict in judge(found)
    ]
    return found


def startup_document(startup: Startup) -> dict[str, Any]:
    """Build the part of the document on start-up and memory."""
    memory_by_clients: dict[str, Any] = {str(k): dict(found) for k, found in startup.memory_by_clients.items()}
    if {"100", "10000"} <= set(memory_by_clients):
        memory_by_clients["ratio"] = memory_by_clients["10000"]["peak"] / memory_by_clients["100"]["peak"]
    return {
        "imports": {**startup.imports, "all": startup.imports["fedstein"] + startup.imports["fit"]},
        "cold": {name: run._asdict() for name, run in startup.cold.items()},
        "warm": {name: run._asdict() for name, run in startup.warm.items()},
        "memory_by_clients": memory_by_clients,
    }


def machine() -> dict[str, Any]:
    """Describe the hardware and the versions that the numbers depend on."""
    import jax

    return {
        "processor": processor(),
        "cores": cores(),
        "memory": memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "device": jax.devices()[0].platform,
        "packages": {name: found for name in PACKAGES if (found := installed(name))},
    }


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def installed(name: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
