"""The rows of one node, read from its own file and checked against what the federation expects of every node."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedstein.data.labels import known_targets
from fedstein.data.table import read_table


class Expectation(NamedTuple):
    """What every node's file must have; other columns may be there and hold anything."""

    features: tuple[str, ...]
    target: str
    task: str  # "classification" | "regression"
    labels: tuple[str, ...]  # in class order; empty for regression


class LocalRows(NamedTuple):
    """Rows as they stand in the file, neither scaled nor split."""

    x: np.ndarray  # float64, n x f, columns in the expected order
    y: np.ndarray  # int32 classes, or float64 targets


def load_rows(path: str | Path, expectation: Expectation) -> LocalRows:
    """Read a CSV, Parquet or NPZ file; InputError if it does not fit.

    A message names the file, the column and the line, never the folder: it is for the node's owner and for the server.
    """
    table = read_table(path, target=expectation.target, features=expectation.features, folder=False)
    x = table.columns(expectation.features)
    known = expectation.labels if expectation.task == "classification" else None
    return LocalRows(x, known_targets(table, known, "correct the label or remove the row"))
