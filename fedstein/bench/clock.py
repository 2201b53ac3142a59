"""Timing rows against each other: interleaved, wall and CPU time, min and median."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

OnCase = Callable[[str], None]


class Case(NamedTuple):
    """One row: ``call`` is timed until what it returns is there, and counts as ``steps`` steps."""

    name: str
    call: Callable[[], Any]
    steps: int = 1
    again: bool = True  # an untimed call before each timed one: the row before has filled the caches with its arrays


class Timing(NamedTuple):
    """Milliseconds a step, one entry a repeat."""

    wall: list[float]
    cpu: list[float]

    @property
    def best(self) -> float:
        return min(self.wall)

    @property
    def middle(self) -> float:
        return statistics.median(self.wall)

    def document(self) -> dict[str, float]:
        return {
            "wall_min": self.best,
            "wall_median": self.middle,
            "cpu_min": min(self.cpu),
            "cpu_median": statistics.median(self.cpu),
            "repeats": len(self.wall),
        }


def measure(cases: Sequence[Case], repeats: int, on_case: OnCase) -> dict[str, Timing]:
    """Every case once to compile, then all of them in turn, ``repeats`` times over."""
    for case in cases:
        on_case(f"compiling: {case.name}")
        jax.block_until_ready(case.call())
    found = {case.name: Timing([], []) for case in cases}
    for repeat in range(repeats):
        on_case(f"timing {len(cases)} rows, {repeat + 1} of {repeats}")
        for case in cases:
            if case.again:
                jax.block_until_ready(case.call())
            wall, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(case.call())
            found[case.name].cpu.append((time.process_time() - cpu) / case.steps * 1e3)
            found[case.name].wall.append((time.perf_counter() - wall) / case.steps * 1e3)
    return found


class Ratio(NamedTuple):
    """How many times ``over`` takes what ``under`` takes: by the least disturbed repeats, and by the middle ones."""

    best: float
    middle: float

    def document(self) -> dict[str, float]:
        return {"min": self.best, "median": self.middle}


def ratio(over: Timing, *under: Timing, counts: Sequence[float] = ()) -> Ratio:
    """``over`` against the sum of ``under``, each taken ``counts`` times where counts are given."""
    times = counts or [1.0] * len(under)
    best = sum(count * each.best for count, each in zip(times, under, strict=True))
    middle = sum(count * each.middle for count, each in zip(times, under, strict=True))
    return Ratio(over.best / best, over.middle / middle)
