"""Class labels and numbers as text in a file: what counts as missing, how a label is spelt, which class it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedstein.data.table import Table, numbers, some
from fedstein.errors import InputError


def is_missing(value: str) -> bool:
    return value.strip().lower() in ("", "na", "n/a", "nan", "null", "none", "inf", "-inf")


def is_number(value: str) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except ValueError:
        return False


def is_integer(value: str) -> bool:
    return is_number(value) and float(value).is_integer() and abs(float(value)) < 2**53


def spelt(value: str) -> str:
    """A label as it is known everywhere: "1", "1.0" and " 1 " are the same one."""
    return str(int(float(value))) if is_integer(value) else value.strip()


def labels(table: Table) -> list[str]:
    """The label of every row; InputError naming column and line where there is none."""
    for row, value in enumerate(table.targets):
        if is_missing(value):
            raise InputError(
                f"{table.path.name}: expected a label in column {table.target_name!r}, got none on {table.place(row)}; "
                "remove the row or fill in a label"
            )
    return [spelt(value) for value in table.targets]


def codes(values: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The distinct values in sorted order (by number where all are numbers), and each row's index into them."""
    distinct = sorted(set(values))
    if all(is_number(value) for value in distinct):
        distinct.sort(key=float)
    index = {value: code for code, value in enumerate(distinct)}
    return tuple(distinct), np.array([index[value] for value in values], np.int64)


def known_targets(table: Table, known: Sequence[str] | None, remedy: str) -> np.ndarray:
    """Every row's target: its label's place among the known ones (int32), or without labels (None) a number (float64).

    InputError naming column and line for another label; `remedy` says what to do about it.
    """
    if known is None:
        return numbers(table.targets, table, table.target_name)
    index = {spelt(label): code for code, label in enumerate(known)}
    found = labels(table)
    for row, label in enumerate(found):
        if label not in index:
            raise InputError(
                f"{table.path.name}: expected one of the labels ({some(known)}) in column {table.target_name!r}, "
                f"got {label!r} on {table.place(row)}; {remedy}"
            )
    return np.array([index[label] for label in found], np.int32)
