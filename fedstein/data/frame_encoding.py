"""DataFrames of several clients as numbers: columns by name, categories and missing values as for files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedstein.data.column_counts import add_counts, count_columns, read_cells
from fedstein.data.dates import refuse_integer_dates
from fedstein.data.encoding import Encoding, choose_encoding, known_categories
from fedstein.data.frames import frame_column, frame_names, no_value, refuse_extra
from fedstein.data.table import Table, listed
from fedstein.errors import InputError


class FrameOptions(NamedTuple):
    """The keys of ``[data]`` that decide how columns of DataFrames are coded; None if the user has not set a key."""

    features: Sequence[str] | None = None
    drop: Sequence[str] | None = None
    categories: Mapping[str, Sequence[Any]] | Sequence[str] | None = None
    missing: str | None = None
    coding: str | None = None


def chosen_columns(frame: Any, others: Sequence[str], options: FrameOptions, where: str) -> tuple[str, ...]:
    """The columns of the first client that are features.

    Args:
        frame: The first client's DataFrame.
        others: The target and client columns.
        options: Which columns the user wants.
        where: What messages call the DataFrame.

    Returns:
        Their names.

    Raises:
        InputError: The user has named a column that does not exist, or that is the target.
    """
    names = frame_names(frame, where)
    for key, wanted in (("features", options.features or ()), ("drop", options.drop or ())):
        if both := [name for name in wanted if name in others]:
            raise InputError(f"{both[0]!r} is in data.{key} and is the target or client column too; remove it there")
        if unknown := [name for name in wanted if name not in names]:
            raise InputError(f"{where}: expected the columns of data.{key}, got no {listed(unknown)}; correct the name")
    if options.features is not None:
        found = tuple(str(name) for name in options.features)
    else:
        found = tuple(name for name in names if name not in (*others, *(options.drop or ())))
    if not found:
        raise InputError(f"{where}: expected feature columns besides target and client, got none")
    return found


def frame_table(frame: Any, names: Sequence[str], others: Sequence[str], options: FrameOptions, where: str) -> Table:
    """The features of one DataFrame as a table.

    Args:
        frame: The DataFrame.
        names: The feature columns.
        others: Further columns that it may have.
        options: Which columns the user wants.
        where: What messages call the DataFrame.

    Returns:
        The table; missing values are NaN in numbers and empty in text.

    Raises:
        InputError: Columns are missing, superfluous, or hold dates.
    """
    there = frame_names(frame, where)
    if missing := [name for name in names if name not in there]:
        raise InputError(
            f"{where}: expected the columns {listed(missing)}, which are missing; columns are found by their names"
        )
    if options.features is None:
        refuse_extra(frame, (*names, *others, *(options.drop or ())), where)
    columns: dict[str, Any] = {}
    categorical = set()
    for name in names:
        values = frame_column(frame, name, where)
        if values.dtype.kind in "mM":
            raise InputError(f"{where}: column {name!r} holds dates or times; turn it into a number, or drop it")
        if is_categorical(frame, name):
            categorical.add(name)
        if values.dtype.kind in "biuf":
            columns[name] = values
        else:
            refuse_nested(values, name, where)
            columns[name] = ["" if no_value(value) else str(value) for value in values.tolist()]
    return Table(where, columns, "", (), None, len(frame), categorical=frozenset(categorical))


def refuse_nested(values: np.ndarray, name: str, where: str) -> None:
    """Refuse cells that hold several values, such as lists, arrays or dicts.

    Args:
        values: The cells of the column.
        name: The column.
        where: What messages call the DataFrame.

    Raises:
        InputError: There is such a cell. The message names the column, the row and the type.
    """
    for row, value in enumerate(values.tolist()):
        if hasattr(value, "__len__") and not isinstance(value, (str, bytes)):
            raise InputError(
                f"{where}: expected a number or text in column {name!r}, got {type(value).__name__} in row {row}; make "
                "a column of each of its values, or leave the column out"
            )


def is_categorical(frame: Any, name: str) -> bool:
    """Tell whether the type of a column says that it holds categories."""
    label = next(label for label in frame.columns if str(label) == name)
    return str(frame[label].dtype).lower().startswith(("category", "categorical", "enum"))


def choose_frame_encoding(tables: Sequence[Table], names: Sequence[str], options: FrameOptions) -> Encoding:
    """Decide how the columns of all clients are coded, from counts and sums of each client.

    Args:
        tables: The clients' rows.
        names: The feature columns.
        options: What the user wants.

    Returns:
        The encoding.

    Raises:
        InputError: A column cannot be coded, or values are missing.
    """
    known = known_categories(options.categories)
    if unknown := [name for name in known if name not in names]:
        raise InputError(f"data.categories: expected names of feature columns, got {unknown[0]!r}")
    if options.missing is None:
        for table in tables:
            refuse_missing(table, names, known)
    refuse_integer_dates(tables, names, (*(options.features or ()), *known))
    values = options.missing == "mode"
    counts = add_counts([count_columns(table, names, categories=known, values=values) for table in tables])
    return choose_encoding(
        counts,
        named=options.features or (),
        categories=known,
        missing=options.missing,
        coding=options.coding,
        where=tables[0].name if len(tables) == 1 else "clients",
    )


def refuse_missing(table: Table, names: Sequence[str], known: Mapping[str, Sequence[str]]) -> None:
    """Refuse missing values, with the client and the row.

    Raises:
        InputError: A value is missing.
    """
    for name in names:
        missing = read_cells(table.column(name, tuple(names)), known.get(name, ())).missing
        if missing.any():
            row, count = int(np.flatnonzero(missing)[0]), int(missing.sum())
            others = f" and in {count - 1} other rows" if count > 1 else ""
            raise InputError(
                f"{table.name}: expected a value in column {name!r}, got a missing value in row {row}{others}; fill it "
                f"in, pass data__missing='mean', 'mode' or 'indicator', or leave the column out: data__drop=[{name!r}]"
            )
