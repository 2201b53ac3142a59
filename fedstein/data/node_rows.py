"""Reading the rows of one node from its own file and checking them against the columns that the federation requires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedstein.data.column_counts import ColumnCounts, count_columns, refuse_missing
from fedstein.data.dates import refuse_date_targets
from fedstein.data.encoding import Encoding
from fedstein.data.holdout import split_of
from fedstein.data.labels import known_targets
from fedstein.data.read_files import read_table
from fedstein.data.table import Table


class Expectation(NamedTuple):
    """The columns that every node's file must have. A file may have further columns with any content."""

    features: tuple[str, ...]
    target: str
    task: str  # "classification" | "regression"
    labels: tuple[str, ...]  # in class order; empty for regression
    encoding: Encoding | None = None  # how columns are coded; None takes all of them as numbers


class LocalRows(NamedTuple):
    """Rows as the file holds them: neither scaled nor split."""

    x: np.ndarray  # float64, n x f, columns in the expected order
    y: np.ndarray  # int32 classes, or float64 targets


def load_rows(path: str | Path, expectation: Expectation) -> LocalRows:
    """Read the rows of one node.

    An error message names the file, the column and the line, but not the folder, because the server sees it too.

    Args:
        path: The node's CSV, Parquet or NPZ file.
        expectation: The columns that the file must have.

    Returns:
        The raw rows, with the columns in the expected order, coded as the encoding says.

    Raises:
        InputError: If the file cannot be read or does not have the columns.
    """
    table, y = _read(path, expectation)
    encoding = expectation.encoding
    return LocalRows(table.columns(expectation.features) if encoding is None else encoding.encode(table), y)


def count_rows(
    path: str | Path,
    expectation: Expectation,
    fraction: float | None,
    categories: Mapping[str, Sequence[str]],
    missing: str | None,
) -> tuple[dict[str, ColumnCounts], dict[str, ColumnCounts]]:
    """Count the columns of one node, before it is known how they are coded.

    Args:
        path: The node's file.
        expectation: The columns that the file must have.
        fraction: The share of rows that the node holds out, or None.
        categories: The columns that are categories, with the names that are known.
        missing: What to do with missing values; None refuses them. For "mode" the values of numeric columns are counted
            too.

    Returns:
        The counts over all rows, and over the rows to train on: names, counts and sums.

    Raises:
        InputError: If the file cannot be read, does not have the columns, has a column that cannot be coded, or lacks
            values although ``missing`` is None.
    """
    table, y = _read(path, expectation)
    kept, _ = split_of(y, fraction)
    every = count_columns(table, expectation.features, categories=categories)
    if missing is None:
        refuse_missing(table, every, categories)
    values = missing == "mode"
    return every, count_columns(table, expectation.features, categories=categories, rows=kept, values=values)


def _read(path: str | Path, expectation: Expectation) -> tuple[Table, np.ndarray]:
    table = read_table(path, target=expectation.target, features=expectation.features, folder=False)
    known = expectation.labels if expectation.task == "classification" else None
    refuse_date_targets([table], known or ())
    return table, known_targets(table, known, "correct the label or remove the row")
