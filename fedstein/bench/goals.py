"""What Fedstein sets out to reach, as ratios of one benchmark, and whether it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Goal(NamedTuple):
    name: str
    limit: float
    at_least: bool
    path: tuple[str, ...]  # where the document has the number
    unit: str = ""


class Verdict(NamedTuple):
    goal: Goal
    got: float | None  # None: it was not measured
    middle: float | None  # by the medians, where the number is a ratio of times

    @property
    def reached(self) -> bool | None:
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
    Goal("peak memory with K = 10,000 over K = 100", 1.5, False, ("startup", "crowds", "ratio")),
    Goal("import fedstein, without JAX", 0.5, False, ("startup", "imports", "fedstein"), "s"),
    Goal("import of all that fit needs, without JAX", 0.5, False, ("startup", "imports", "all"), "s"),
    Goal("time to the first round, BNN", 8, False, ("startup", "cold", "BNN", "first_round"), "s"),
    Goal("time to the first round, BNN, second run", 4, False, ("startup", "warm", "BNN", "first_round"), "s"),
)


def judge(document: Mapping[str, Any]) -> list[Verdict]:
    """Every goal against a benchmark's document; where a number is not there the goal was not measured."""
    return [Verdict(goal, *found(document, goal.path)) for goal in GOALS]


def found(document: Mapping[str, Any], path: tuple[str, ...]) -> tuple[float | None, float | None]:
    value: Any = document
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None, None
        value = value[key]
    return (value["min"], value["median"]) if isinstance(value, Mapping) else (value, None)
