"""Columns of a DataFrame, pandas or Polars, by name. Neither library is imported here.

A DataFrame is anything with ``columns`` that gives a column by its name, which in turn has ``to_numpy``. The floats of
a DataFrame are float64 unless somebody took care, so they are cast to the precision of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from fedstein.data.cells import LARGEST
from fedstein.data.table import listed
from fedstein.errors import InputError


def is_frame(value: Any) -> bool:
    """Tell whether something is a DataFrame."""
    return hasattr(value, "columns") and hasattr(value, "__getitem__") and hasattr(value, "shape")


def frame_names(frame: Any, where: str) -> tuple[str, ...]:
    """The names of the columns.

    Args:
        frame: The DataFrame.
        where: What messages call it.

    Returns:
        The names as text, in the order of the DataFrame.

    Raises:
        InputError: Two columns have the same name.
    """
    names = tuple(str(name) for name in frame.columns)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{where}: expected different column names, got {listed(twice)} twice; rename one")
    return names


def frame_column(frame: Any, name: str, where: str, argument: str = "") -> np.ndarray:
    """One column as an array, of whatever type it has.

    Args:
        frame: The DataFrame.
        name: The name of the column, as text.
        where: What messages call the DataFrame.
        argument: The argument that names the column, for the message: ``"target"``, ``"client"``.

    Raises:
        InputError: There is no such column.
    """
    label = {str(label): label for label in frame.columns}.get(name)
    if label is None:
        asked = f" ({argument}={name!r})" if argument else ""
        raise InputError(f"{where}: expected a column {name!r}{asked}, got columns {listed(frame_names(frame, where))}")
    return np.asarray(frame[label].to_numpy())


def frame_rows(frame: Any, names: Sequence[str], where: str, precision: Any) -> np.ndarray:
    """Columns as numbers, in the order in which they are named and not in that of the DataFrame.

    Args:
        frame: The DataFrame.
        names: The features.
        where: What messages call the DataFrame.
        precision: The type of the result.

    Returns:
        Rows x names.

    Raises:
        InputError: A column is missing, has no numbers or misses values.
    """
    missing = [name for name in names if name not in set(frame_names(frame, where))]
    if missing:
        raise InputError(f"{where}: expected columns that are missing: {listed(missing)}; columns go by their names")
    rows = np.empty((len(frame), len(names)), precision)
    for i, name in enumerate(names):
        rows[:, i] = _numbers(frame_column(frame, name, where), name, where)
    return rows


def refuse_extra(frame: Any, names: Sequence[str], where: str) -> None:
    """Refuse columns that are no features, because nobody would know that they are not used.

    Args:
        frame: The DataFrame.
        names: The columns that are known.
        where: What messages call the DataFrame.

    Raises:
        InputError: There are others.
    """
    extra = [name for name in frame_names(frame, where) if name not in set(names)]
    if extra:
        raise InputError(f"{where}: expected the columns {listed(list(names))}, got also {listed(extra)}; drop them")


def _numbers(values: np.ndarray, name: str, where: str) -> np.ndarray:
    """A column as float64."""
    if values.dtype.kind == "M" or values.dtype.kind == "m":
        raise InputError(f"{where}: column {name!r} holds dates or times; turn it into a number, or drop it")
    if values.dtype.kind not in "biuf":
        missing = np.array([no_value(value) for value in values], bool)
        text = next((value for value, none in zip(values, missing, strict=True) if not none and not _real(value)), None)
        if text is not None:
            raise InputError(
                f"{where}: expected numbers in column {name!r}, got {str(text)[:40]!r}; code the column as numbers "
                "(pandas.get_dummies, polars.DataFrame.to_dummies), or drop it"
            )
        values = np.where(missing, np.nan, np.where(missing, 0, values)).astype(np.float64)
    numbers = values.astype(np.float64)
    bad = np.flatnonzero(~(np.abs(numbers) <= LARGEST))
    if len(bad):
        got = "a missing value" if np.isnan(numbers[bad[0]]) else f"{numbers[bad[0]]:g}"
        raise InputError(
            f"{where}: expected a finite number in column {name!r}, got {got} in row {bad[0]}; remove the row or fill "
            "in a number"
        )
    return numbers


def no_value(value: Any) -> bool:
    """Tell whether a cell is empty: None, NaN, or pandas' NA, which cannot be compared."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:
        return True


def _real(value: Any) -> bool:
    return isinstance(value, (Real, np.bool_))
