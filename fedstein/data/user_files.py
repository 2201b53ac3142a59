"""Files of the user: CSV with a header line, Parquet, or NPZ (x, y and optionally client and feature_names)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedstein.data.dataset import TASKS, Dataset, fixed_split, validate
from fedstein.data.labels import codes, is_integer, is_missing, is_number, known_targets, labels
from fedstein.data.scaling import pooled, scale_rows, unscaled
from fedstein.data.table import Table, numbers, read_table
from fedstein.errors import InputError

MOST_LABELS = 50  # with more distinct numbers than this, the task is a regression


def load_file(
    path: str | Path,
    *,
    target: str | None = None,
    client: str | None = None,
    task: str | None = None,
    test_path: str | Path | None = None,
    test_fraction: float = 0.2,
    standardize: bool = True,
) -> Dataset:
    """Load a dataset from a file. The split and the scaling depend on the rows alone, not on a seed.

    Args:
        path: A CSV, Parquet or NPZ file.
        target: The column to predict; by default the last one, or the array y of an NPZ file.
        client: The column that names the client of each row, if there is one.
        task: "classification" or "regression"; by default the targets decide.
        test_path: A second file with the test rows.
        test_fraction: The share of rows that become test rows if there is no second file.
        standardize: Whether to scale features (and regression targets) by their mean and sd over the training rows.

    Returns:
        The dataset.

    Raises:
        InputError: If a file cannot be read or does not hold what is expected.
    """
    if not test_path and not 0 < test_fraction < 1:
        raise InputError(f"expected data.test_fraction between 0 and 1, got {test_fraction}; 0.2 is usual")
    table = read_table(path, target=target, client=client)
    if test_path and Path(test_path).expanduser().resolve() == table.path.resolve():
        raise InputError(
            f"expected test rows that are not training rows, got data.test_path and data.path both {table.path.name}; "
            "name another file, or leave data.test_path out to hold rows back"
        )
    held_out = read_table(test_path, target=table.target_name, features=table.feature_names) if test_path else None
    task = _task(table, task)
    if task == "classification":
        label_names, classes = codes(labels(table))
        y: np.ndarray = classes.astype(np.int32)
    else:
        label_names, y = (), numbers(table.targets, table, table.target_name)
    client_names, owners = codes(table.clients) if table.clients is not None else ((), None)
    if held_out is None:
        strata = (classes if task == "classification" else np.zeros(len(y), np.int64)) * (len(client_names) + 1)
        train, test = fixed_split(strata + (0 if owners is None else owners), test_fraction)
        train_raw, test_raw, train_y, test_y = table.x[train], table.x[test], y[train], y[test]
        owners = owners[train] if owners is not None else None
    else:
        train_raw, train_y = table.x, y
        test_raw = held_out.columns(table.feature_names)
        known = label_names if task == "classification" else None
        test_y = known_targets(held_out, known, "remove the row or add such rows to the training file")
    _check_not_empty(table, train_raw, test_raw)
    targets = train_y if task == "regression" else None
    scaling = pooled(train_raw, targets) if standardize else unscaled(train_raw.shape[1])
    train_x, train_y = scale_rows(train_raw, train_y, scaling)
    test_x, test_y = scale_rows(test_raw, test_y, scaling)
    return validate(
        Dataset(
            name=table.path.name,
            task=task,
            train_x=train_x,
            train_y=train_y,
            test_x=test_x,
            test_y=test_y,
            classes=len(label_names),
            feature_names=table.feature_names,
            mean=scaling.mean,
            scale=scaling.scale,
            target_mean=scaling.target_mean,
            target_scale=scaling.target_scale,
            label_names=label_names,
            target_name=table.target_name,
            client_names=client_names,
            client_of_row=owners,
        )
    )


def load_features(path: str | Path, feature_names: Sequence[str]) -> np.ndarray:
    """Read the raw features of rows to predict for.

    Args:
        path: A CSV, Parquet or NPZ file. It may have further columns.
        feature_names: The columns to read.

    Returns:
        Rows x features, float64, not scaled.

    Raises:
        InputError: If a column is missing or a value is not a finite number.
    """
    return read_table(path, target="", features=feature_names).columns(tuple(feature_names))


def _task(table: Table, task: str | None) -> str:
    if task and task not in TASKS:
        raise InputError(f"expected data.task to be 'classification' or 'regression', got {task!r}; or leave it out")
    if task:
        return task
    distinct = {value for value in table.targets if not is_missing(value)}
    integers = all(is_integer(value) for value in distinct)
    numeric = integers or all(is_number(value) for value in distinct)
    if (integers or not numeric) and len(distinct) <= MOST_LABELS:
        return "classification"
    if numeric:
        return "regression"
    raise InputError(
        f"{table.path.name}: expected at most {MOST_LABELS} labels or numbers in column {table.target_name!r}, "
        f"got {len(distinct)} different values, not all numbers; set data.target or data.task"
    )


def _check_not_empty(table: Table, train: np.ndarray, test: np.ndarray) -> None:
    if len(train) == 0 or len(test) == 0:
        raise InputError(
            f"{table.path.name}: expected training and test rows, got {len(train)} and {len(test)}; "
            "give more rows or change data.test_fraction"
        )
