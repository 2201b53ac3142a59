"""Columns of a DataFrame, pandas or Polars, by name. Neither library is imported here.

A DataFrame is any object that has ``columns`` and returns a column by its name; a column has ``to_numpy``. The floats
of a DataFrame are usually float64, so they are cast to the precision of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

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
    """Return one column as an array of its own type.

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


def refuse_extra(frame: Any, names: Sequence[str], where: str) -> None:
    """Refuse columns that are not features, because the user would not notice that they are ignored.

    Args:
        frame: The DataFrame.
        names: The columns that are known.
        where: What messages call the DataFrame.

    Raises:
        InputError: There are other columns.
    """
    extra = [name for name in frame_names(frame, where) if name not in set(names)]
    if extra:
        raise InputError(f"{where}: expected the columns {listed(list(names))}, got also {listed(extra)}; drop them")


def no_value(value: Any) -> bool:
    """Tell whether a cell is empty: None, NaN, or pandas' NA, which cannot be compared."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:
        return True
