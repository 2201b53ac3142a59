"""The rows of one node: read from the node's own file and checked against the columns that the federation requires."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedstein.data.labels import known_targets
from fedstein.data.read_files import read_table


class Expectation(NamedTuple):
    """The columns that every node's file must have. A file may have further columns with any content."""

    features: tuple[str, ...]
    target: str
    task: str  # "classification" | "regression"
    labels: tuple[str, ...]  # in class order; empty for regression


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
        The raw rows, with the columns in the expected order.

    Raises:
        InputError: If the file cannot be read or does not have the columns.
    """
    table = read_table(path, target=expectation.target, features=expectation.features, folder=False)
    x = table.columns(expectation.features)
    known = expectation.labels if expectation.task == "classification" else None
    return LocalRows(x, known_targets(table, known, "correct the label or remove the row"))
