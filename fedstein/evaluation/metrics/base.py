"""The contract of a metric: sums over rows, which add up over clients, and a number computed from the sums.

Every sum is a float64 array of a fixed shape, so that a server can check what a client sent. Metrics do not clip: a
true class of probability zero gives an infinite NLL, and a NaN stays a NaN. Files store a number that is not finite as
null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedstein.evaluation.prediction import Prediction

Metrics = dict[str, float | None]
Sums = dict[str, NDArray[np.float64]]
ROWS = "rows"  # the name of the sum that every metric has: the number of rows


def zeros(*scalars: str, **shapes: tuple[int, ...]) -> Callable[[str], Sums]:
    """The ``zero`` of a metric whose sums start at 0 and are the same for every task.

    Args:
        *scalars: The names of the sums that are single numbers.
        **shapes: The shapes of the others by name.

    Returns:
        Task -> the sums before the first row.
    """
    named = {**dict.fromkeys(scalars, ()), **shapes}
    return lambda task: {name: np.zeros(shape) for name, shape in named.items()}


def add(one: Mapping[str, Any], other: Mapping[str, Any]) -> Sums:
    """The ``merge`` of sums that add up.

    Args:
        one: Sums by name.
        other: Sums with the same names.

    Returns:
        Their sums by name.
    """
    return {name: one[name] + np.asarray(other[name], np.float64) for name in one}


def accept_any_sums(sums: Mapping[str, Any]) -> str:
    """The ``implausible`` of a metric that takes any sums that are not NaN."""
    return ""


def are_counts(*arrays: ArrayLike) -> bool:
    """Whether these are whole numbers from 0 on, small enough to be exact.

    Args:
        *arrays: The arrays to look at.

    Returns:
        True if all of them are counts.
    """
    each = [np.atleast_1d(np.asarray(array)) for array in arrays]
    return all(bool(((count >= 0) & (count == np.floor(count)) & (count < 2**53)).all()) for count in each)


class Metric(NamedTuple):
    """One metric, as pure functions of NumPy arrays.

    Metrics that name the same sum must have the same ``update``; it is called once for all of them. ``"rows"`` is
    summed for every metric and need not be named. ``result`` is called only if there are rows.

    Attributes:
        name: What it is called in ``rounds.jsonl``.
        about: One line that says what it is.
        tasks: The tasks that have it: ``"classification"``, ``"regression"`` or both. Elsewhere its value is null.
        zero: The sums over no rows for a task: their names and shapes, and what ``merge`` starts from.
        update: The sums over these rows, from their prediction and their labels or standardised targets.
        result: The metric, from the sums over all rows and the scale of the target (1 for classification). None
            where it is not defined.
        larger_is_better: Whether a larger value is a better one.
        merge: The sums over two sets of rows from those over each.
        implausible: Why no rows can have these sums; empty if some can. It gets all sums that arrived; none
            of them is NaN, and ``"rows"`` is a count. An infinite loss can be real.
    """

    name: str
    about: str
    tasks: tuple[str, ...]
    zero: Callable[[str], Sums]
    update: Callable[[Prediction, NDArray[Any]], Mapping[str, ArrayLike]]
    result: Callable[[Mapping[str, Any], float], float | None]
    larger_is_better: bool = False
    merge: Callable[[Mapping[str, Any], Mapping[str, Any]], Sums] = add
    implausible: Callable[[Mapping[str, Any]], str] = accept_any_sums
