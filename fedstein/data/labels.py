"""Class labels and numbers that a file holds as text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedstein.data.cells import is_infinite, is_missing, is_number, normalised_label
from fedstein.data.table import Table, listed, numbers
from fedstein.errors import InputError


def labels(table: Table) -> list[str]:
    """Return the normalised label of every row.

    Args:
        table: The rows.

    Raises:
        InputError: If a row has no label. The message names the column and the line.
    """
    for row, value in enumerate(table.targets):
        if is_missing(value) or is_infinite(value):
            raise InputError(
                f"{table.name}: expected a label in column {table.target_name!r}, got none on {table.place(row)}; "
                "remove the row or fill in a label"
            )
    return [normalised_label(value) for value in table.targets]


def codes(values: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Number the distinct values in sorted order (numerically if all of them are numbers).

    Args:
        values: One value for each row.

    Returns:
        The distinct values, and the index of each row's value among them.
    """
    distinct = sorted(set(values))
    if all(is_number(value) for value in distinct):
        distinct.sort(key=float)
    index = {value: code for code, value in enumerate(distinct)}
    return tuple(distinct), np.array([index[value] for value in values], np.int64)


def known_targets(table: Table, known: Sequence[str] | None, remedy: str) -> np.ndarray:
    """Convert the targets of a table for a task that is already known.

    Args:
        table: The rows.
        known: The labels in class order, or None for a regression.
        remedy: What the user can do about an unknown label; it becomes part of the message.

    Returns:
        int32 class indices, or float64 numbers for a regression.

    Raises:
        InputError: If a label is unknown or a value is not a finite number. The message names the column and the line.
    """
    if known is None:
        return numbers(table.targets, table, table.target_name)
    index = {normalised_label(label): code for code, label in enumerate(known)}
    found = labels(table)
    for row, label in enumerate(found):
        if label not in index:
            raise InputError(
                f"{table.name}: expected one of the labels ({listed(known)}) in column {table.target_name!r}, "
                f"got {label!r} on {table.place(row)}; {remedy}"
            )
    return np.array([index[label] for label in found], np.int32)
