"""Timing several functions against each other: interleaved, by wall time and CPU time, with minimum and median."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

OnCase = Callable[[str], None]


class Case(NamedTuple):
    """One row of a table. ``call`` is timed until its result is ready, and counts as ``steps`` steps."""

    name: str
    call: Callable[[], Any]
    steps: int = 1
    again: bool = True  # call once untimed before each timed call, because the previous case has filled the caches


class Timing(NamedTuple):
    """Milliseconds of one step, one entry for each repeat."""

    wall: list[float]
    cpu: list[float]

    @property
    def best(self) -> float:
        """The minimum of the wall time."""
        return min(self.wall)

    @property
    def middle(self) -> float:
        """The median of the wall time."""
        return statistics.median(self.wall)

    def document(self) -> dict[str, float]:
        """Return the numbers for ``bench.json``."""
        return {
            "wall_min": self.best,
            "wall_median": self.middle,
            "cpu_min": min(self.cpu),
            "cpu_median": statistics.median(self.cpu),
            "repeats": len(self.wall),
        }


def measure(cases: Sequence[Case], repeats: int, on_case: OnCase) -> dict[str, Timing]:
    """Call every case once to compile it, then time all cases in turn.

    Args:
        cases: The cases.
        repeats: How often each case is timed.
        on_case: Called with a line of progress.

    Returns:
        The timing of each case by its name.
    """
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
    """A ratio of two times: of their minima, and of their medians."""

    best: float
    middle: float

    def document(self) -> dict[str, float]:
        """Return the numbers for ``bench.json``."""
        return {"min": self.best, "median": self.middle}


def ratio(over: Timing, *under: Timing, counts: Sequence[float] = ()) -> Ratio:
    """Divide one time by the sum of others.

    Args:
        over: The numerator.
        *under: The denominators, which are added.
        counts: How often each denominator counts; by default once.
    """
    times = counts or [1.0] * len(under)
    best = sum(count * each.best for count, each in zip(times, under, strict=True))
    middle = sum(count * each.middle for count, each in zip(times, under, strict=True))
    return Ratio(over.best / best, over.middle / middle)
