"""Deciding whether the targets of a file are labels or numbers."""

from __future__ import annotations

from collections.abc import Sequence

from fedstein.data.cells import is_infinite, is_integer, is_missing, is_number
from fedstein.data.dataset import TASKS
from fedstein.data.table import Table
from fedstein.errors import InputError

MOST_LABELS = 50  # text with more different values is not a label
MOST_INTEGERS = 10  # more different integers than this could be labels or counts


def choose_task(
    tables: Sequence[Table], task: str | None, labels: Sequence[str | int] | None, model_task: str | None
) -> str:
    """Decide the task from the targets, unless the user has set it.

    Args:
        tables: The rows.
        task: ``data.task``.
        labels: ``data.labels``, which only a classification has.
        model_task: The task of the model that was chosen, which decides about integers.

    Returns:
        "classification" or "regression".

    Raises:
        InputError: The targets could be either, or are neither.
    """
    if task and task not in TASKS:
        raise InputError(f"expected data.task to be 'classification' or 'regression', got {task!r}; or leave it out")
    if task == "regression" and labels:
        raise InputError(f"expected no data.labels for a regression, got {list(labels)}; leave them out")
    if task or labels:
        return task or "classification"
    name, column = (tables[0].name if len(tables) == 1 else f"{len(tables)} files"), tables[0].target_name
    distinct = {value for table in tables for value in table.targets if not is_missing(value)}
    if all(is_integer(value) for value in distinct):
        count = len({float(value) for value in distinct})
        if model_task is not None:
            return model_task
        if count <= MOST_INTEGERS:
            return "classification"
        raise InputError(
            f"{name}: column {column!r} has {count} different integers, which could be labels or numbers; set "
            'data.task = "classification" or "regression" (counts are a regression), or data.target to another column'
        )
    if all(is_number(value) or is_infinite(value) for value in distinct):
        return "regression"
    if len(distinct) <= MOST_LABELS:
        return "classification"
    raise InputError(
        f"{name}: expected at most {MOST_LABELS} labels or numbers in column {column!r}, "
        f"got {len(distinct)} different values, not all numbers; set data.target or data.task"
    )
