"""The sums of several metrics together: a client computes them, the server adds them and computes the metrics.

The sums are in the order in which the metrics name them, ``"rows"`` first. A sum that two metrics share occurs once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedstein.errors import FedsteinError
from fedstein.evaluation.metrics.base import ROWS, Metric, Metrics, Sums, add, are_counts
from fedstein.evaluation.metrics.registry import BUILT_IN
from fedstein.evaluation.prediction import Prediction


def no_sums(task: str, metrics: Sequence[Metric] = BUILT_IN) -> Sums:
    """The sums over no rows.

    Args:
        task: ``"classification"`` or ``"regression"``.
        metrics: What the sums are for.

    Returns:
        What adding up starts from: ``"rows"`` and the sums of every metric that the task has.
    """
    total: Sums = {ROWS: np.zeros(())}
    for metric in _distinct(task, metrics):
        total |= {name: np.asarray(value, np.float64) for name, value in metric.zero(task).items()}
    return total


def sum_shapes(task: str, metrics: Sequence[Metric] = BUILT_IN) -> dict[str, tuple[tuple[int, ...], str]]:
    """{name: (shape, dtype)} of a client's sums.

    Args:
        task: ``"classification"`` or ``"regression"``.
        metrics: The metrics of the run.

    Returns:
        The shape and the type of each sum by name.
    """
    return {name: (array.shape, str(array.dtype)) for name, array in no_sums(task, metrics).items()}


def sums_over(prediction: Prediction, y: ArrayLike, metrics: Sequence[Metric] = BUILT_IN) -> Sums:
    """Compute the sums over these rows from which the metrics are computed.

    Args:
        prediction: Of at least one row.
        y: The label or the standardised target of each row.
        metrics: What the sums are for.

    Returns:
        The sums by name, float64.

    Raises:
        ValueError: The labels or targets do not fit the prediction.
        FedsteinError: A metric's ``update`` gave other sums than its ``zero`` names.
    """
    truth = prediction.checked(y)
    sums: Sums = {ROWS: np.asarray(len(truth), np.float64)}
    for metric in _distinct(prediction.task, metrics):
        found = {name: np.asarray(value, np.float64) for name, value in metric.update(prediction, truth).items()}
        expected = {name: array.shape for name, array in metric.zero(prediction.task).items()}
        if {name: array.shape for name, array in found.items()} != expected:
            got = {name: array.shape for name, array in found.items()}
            raise FedsteinError(f"metric {metric.name!r}: expected sums of the shapes {expected}, got {got}")
        sums |= {name: found[name] for name in expected}
    return sums


def add_sums(task: str, each: Iterable[Mapping[str, Any]], metrics: Sequence[Metric] = BUILT_IN) -> Sums:
    """Merge the sums of several clients, in the order given.

    Args:
        task: ``"classification"`` or ``"regression"``.
        each: The sums of each client.
        metrics: What the sums are for.

    Returns:
        The sums over all rows.
    """
    total, distinct = no_sums(task, metrics), _distinct(task, metrics)
    for sums in each:
        merged = add({ROWS: total[ROWS]}, sums)
        for metric in distinct:
            names = metric.zero(task)
            merged |= metric.merge({name: total[name] for name in names}, {name: sums[name] for name in names})
        total = merged
    return total


def metrics_of(sums: Mapping[str, Any], target_scale: float = 1.0, metrics: Sequence[Metric] = BUILT_IN) -> Metrics:
    """The metrics; those that the task does not have, and all of no rows, are None.

    Args:
        sums: The sums over all rows.
        target_scale: What one unit of the standardised target is in original units (regression).
        metrics: What to make of the sums.

    Returns:
        The value of each metric by its name.
    """
    known = bool(float(sums[ROWS]))
    return {m.name: m.result(sums, target_scale) if known and _has(m, sums) else None for m in metrics}


def implausible_sums(sums: Mapping[str, Any], metrics: Sequence[Metric] = BUILT_IN) -> str:
    """Explain why no rows could produce these sums; the text is empty if some could.

    Args:
        sums: What a client sent; names and shapes are in the form of ``sum_shapes``.
        metrics: What the sums are for.

    Returns:
        One phrase that says what was expected, or an empty one.
    """
    if not are_counts(sums[ROWS]) or any(np.isnan(array).any() for array in sums.values()):
        return "expected a count of rows from 0 on and sums without NaN"
    return next((why for m in metrics if _has(m, sums) and (why := m.implausible(sums))), "")


def _distinct(task: str, metrics: Sequence[Metric]) -> list[Metric]:
    """The metrics that a task has, one for each way to make sums."""
    first: dict[Any, Metric] = {}
    for metric in metrics:
        if task in metric.tasks:
            first.setdefault(metric.update, metric)
    return list(first.values())


def _has(metric: Metric, sums: Mapping[str, Any]) -> bool:
    return any(metric.zero(task).keys() <= sums.keys() for task in metric.tasks)
