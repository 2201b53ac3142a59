"""Checks that refuse dates as features and as targets, also dates that are written as one integer such as 20240131."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, time, timedelta
from typing import Any

import numpy as np

from fedstein.data.cells import are_integer_dates, is_date, is_missing
from fedstein.data.column_counts import read_cells
from fedstein.data.table import Column, Table, read_numbers
from fedstein.errors import InputError

FIRST = 20  # cells of a column that are checked first; most columns need no more
REMEDY = "turn it into a number such as days since a fixed day"


def refuse_integer_dates(tables: Sequence[Table], names: Sequence[str], named: Collection[str]) -> None:
    """Refuse features that hold dates as integers, because a month counts as 100 and a year as 10,000 in them.

    Args:
        tables: The rows of every client.
        names: The feature columns.
        named: Columns that the user has named as features or categories. They are not checked.

    Raises:
        InputError: Every number of a column reads as a date. The message names the column and the first line.
    """
    for name in names:
        columns = [table.column(name, tuple(names)) for table in tables if name not in (*named, *table.categorical)]
        if len(columns) == len(tables) and all(_has_integer_dates(column) for column in columns):
            numbers = read_numbers(columns[0])
            row = int(np.flatnonzero(~np.isnan(numbers))[0])
            raise InputError(
                f"{tables[0].name}: column {name!r} looks like dates written as integers ({numbers[row]:.0f} on "
                f'{tables[0].place(row)}); {REMEDY}, leave it out with data.drop = ["{name}"], or name the features '
                "in data.features if these are numbers"
            )


def refuse_date_targets(tables: Sequence[Table], known: Collection[str] = ()) -> None:
    """Refuse a target column of dates.

    Args:
        tables: The rows of every client.
        known: The labels that the user has listed. They may look like dates.

    Raises:
        InputError: Every target of a table is a date, or every target of all tables is a date as an integer.
    """
    if known:
        return
    integers = all(_has_integer_dates(table.targets) for table in tables)
    for table in tables:
        rows = [row for row, value in enumerate(table.targets) if not is_missing(value)]
        if rows and (integers or all(is_date(table.targets[row]) for row in rows)):
            raise InputError(
                f"{table.name}: expected labels or numbers in column {table.target_name!r} (data.target), got a date "
                f"({table.targets[rows[0]]!r} on {table.place(rows[0])}); {REMEDY}, or set data.target to another "
                "column"
            )


def refuse_passed_dates(parts: Sequence[np.ndarray], names: Sequence[str]) -> None:
    """Refuse targets that were passed to ``fedstein.fit`` and are dates.

    Args:
        parts: The targets of each client.
        names: What messages call each client.

    Raises:
        InputError: The targets of a client are dates, times or durations, as such or as text, or all targets are dates
            as integers.
    """
    integers = all(y.dtype.kind in "iuf" and are_integer_dates(y) for y in parts)
    for y, name in zip(parts, names, strict=True):
        if integers or y.dtype.kind in "mM" or (y.dtype.kind not in "biuf" and all(map(_is_date, y.tolist()))):
            raise InputError(
                f"{name}: expected labels or numbers as targets, got a date or time ({str(y[0])[:19]}); {REMEDY}, "
                "or pass another target"
            )


def _has_integer_dates(column: Column) -> bool:
    """Whether every number of a column is a date as an integer; the first cells are enough for most columns."""
    return all(_integer_dates(part) for part in (column[:FIRST], column))


def _integer_dates(column: Column) -> bool:
    cells = read_cells(column)
    return cells.texts is None and are_integer_dates(cells.numbers[~cells.missing])


def _is_date(value: Any) -> bool:
    return isinstance(value, (date, time, timedelta)) or (isinstance(value, str) and is_date(value))
