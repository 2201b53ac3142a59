"""The goals for the speed of Fedstein, as limits for numbers of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Goal(NamedTuple):
    """A limit for one number of the benchmark."""

    name: str
    limit: float
    at_least: bool
    path: tuple[str, ...]  # the keys that lead to the number in the document
    unit: str = ""


class Verdict(NamedTuple):
    """A goal, the number that was measured, and whether it reaches the goal."""

    goal: Goal
    got: float | None  # None: not measured
    middle: float | None  # the ratio of medians, if the number is a ratio of times

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None if the number was not measured."""
        if self.got is None:
            return None
        return self.got >= self.goal.limit if self.goal.at_least else self.got <= self.goal.limit


GOALS = (
    Goal("BNN step, times BlackJAX", 25, True, ("ratios", "BlackJAX / Fedstein, BNN")),
    Goal("BNN step, times NumPyro", 20, True, ("ratios", "NumPyro / Fedstein, BNN")),
    Goal("BNN step over its products", 1.3, False, ("ratios", "BNN / its products")),
    Goal("BNN step with KDE terms over its products", 1.5, False, ("ratios", "BNN with KDE terms / its products")),
    Goal("BLR step, times the best of BlackJAX and NumPyro", 3, True, ("ratios", "best peer / Fedstein, BLR")),
    Goal("own model over the built-in BNN", 3, False, ("ratios", "own model / built-in BNN")),
    Goal(
        "KSD round, 27 x 300, over its products",
        1.5,
        False,
        ("ratios", "ksd, curvature sites, 27 x 300 / its products"),
    ),
    Goal(
        "HIP round, 27 x 300, over its products",
        1.7,
        False,
        ("ratios", "hip, curvature sites, 27 x 300 / its products"),
    ),
    Goal("round with K = 10,000 over K = 100, pool 100", 1.5, False, ("ratios", "K = 10,000 / K = 100, pool 100")),
    Goal("peak memory with K = 10,000 over K = 100", 1.5, False, ("startup", "memory_by_clients", "ratio")),
    Goal("import fedstein, without JAX", 0.5, False, ("startup", "imports", "fedstein"), "s"),
    Goal("import of all that fit needs, without JAX", 0.5, False, ("startup", "imports", "all"), "s"),
    Goal("time to the first round, BNN", 8, False, ("startup", "cold", "BNN", "first_round"), "s"),
    Goal("time to the first round, BNN, second run", 4, False, ("startup", "warm", "BNN", "first_round"), "s"),
)


def judge(document: Mapping[str, Any]) -> list[Verdict]:
    """Check every goal.

    Args:
        document: The document of a benchmark.

    Returns:
        A verdict for each goal. A goal whose number is missing was not measured.
    """
    return [Verdict(goal, *found(document, goal.path)) for goal in GOALS]


def found(document: Mapping[str, Any], path: tuple[str, ...]) -> tuple[float | None, float | None]:
    """Return the number at a path of the document and, for a ratio, its median."""
    value: Any = document
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None, None
        value = value[key]
    return (value["min"], value["median"]) if isinstance(value, Mapping) else (value, None)
