"""The type that every loader returns, and the validation that every dataset passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedstein.data.encoding import Encoding
from fedstein.errors import InputError

TASKS = ("classification", "regression")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test rows as a model takes them: `train_x = (raw - mean) / scale`, without an intercept column."""

    name: str
    task: str  # one of TASKS
    train_x: np.ndarray  # float32, n x f
    train_y: np.ndarray  # int32 labels 0..classes-1, or float32 targets standardised with the training rows
    test_x: np.ndarray
    test_y: np.ndarray
    classes: int  # 0 for regression
    feature_names: tuple[str, ...]
    mean: np.ndarray  # float64, f; 0 if a column is not scaled
    scale: np.ndarray  # float64, f; 1 if a column is not scaled
    target_mean: float = 0.0
    target_scale: float = 1.0
    label_names: tuple[str, ...] = ()  # the original label of each class index
    target_name: str = ""  # for files of the user: the name of the target column
    client_names: tuple[str, ...] = ()
    client_of_row: np.ndarray | None = None  # for each training row, its index into client_names
    encoding: Encoding | None = None  # for files of the user: how their columns became the features
    label_kind: str = "text"  # "text" | "int" | "bool": the type of the labels that label_names spells


def scaled(raw: np.ndarray, mean: np.ndarray, scale: np.ndarray, precision: Any = np.float32) -> np.ndarray:
    """Scale raw features: `(raw - mean) / scale`, computed in float64 and stored as float32 unless said otherwise.

    Args:
        raw: Raw values, with the features on the last axis.
        mean: The value to subtract from each feature.
        scale: The value to divide each feature by.
        precision: The type of the result.

    Returns:
        The scaled values. ``validate`` rejects values that float32 cannot hold.
    """
    with np.errstate(over="ignore"):  # validate rejects what float32 cannot hold
        out: np.ndarray = ((np.asarray(raw, np.float64) - mean) / scale).astype(precision)
    return out


def standardisation(raw: np.ndarray, fills: np.ndarray | float = np.nan) -> tuple[np.ndarray, np.ndarray]:
    """Compute the mean and the standard deviation of each column. Columns of only 0 and 1 are left unchanged.

    Args:
        raw: The raw training rows, n x f.
        fills: For each column the number that a 0/1 column may hold besides 0 and 1 (``Encoding.binary_fills``); NaN if
            there is none.

    Returns:
        Mean and scale of each column. A constant column and a binary column have scale 1.
    """
    raw = np.asarray(raw, np.float64)
    low, high = raw.min(axis=0), raw.max(axis=0)
    mean, scale = raw.mean(axis=0), raw.std(axis=0)
    constant = low == high
    mean, scale = np.where(constant, low, mean), np.where(constant | (scale == 0), 1.0, scale)
    binary = np.all((raw == 0) | (raw == 1) | (raw == fills), axis=0)
    return np.where(binary, 0.0, mean), np.where(binary, 1.0, scale)


def fixed_order(count: int, tag: int) -> np.ndarray:
    """Make a permutation that depends on its tag alone, and not on a seed or the NumPy version (raw bits are stable).

    Args:
        count: The number of rows.
        tag: An integer that identifies the permutation.

    Returns:
        The permuted row numbers.
    """
    return np.argsort(np.random.PCG64(tag).random_raw(count), kind="stable")


def fixed_split(strata: np.ndarray, fraction: float, tag: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Split rows into training and test rows so that each stratum contributes its share.

    Args:
        strata: The stratum of each row, such as its label.
        fraction: The share of test rows. Their total number is exact up to one row.
        tag: An integer that identifies the split, see ``fixed_order``.

    Returns:
        The row numbers of the training rows and of the test rows, each sorted.
    """
    count = len(strata)
    order = fixed_order(count, tag)
    _, codes, sizes = np.unique(np.asarray(strata)[order], return_inverse=True, return_counts=True)
    grouped = np.argsort(codes, kind="stable")
    rank = np.empty(count)
    rank[grouped] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    by_share = np.argsort((rank + 0.5) / sizes[codes], kind="stable")
    tests = max(1, round(fraction * count))
    return np.sort(order[by_share[tests:]]), np.sort(order[by_share[:tests]])


def validate(dataset: Dataset, tested: bool = True) -> Dataset:
    """Check that a dataset is complete, finite and consistent.

    Args:
        dataset: The dataset to check.
        tested: Whether there must be test rows.

    Returns:
        The same dataset.

    Raises:
        InputError: If something is wrong. The message says what was expected and what was found.
    """
    name, features = dataset.name, len(dataset.feature_names)
    if dataset.task not in TASKS:
        raise InputError(f"{name}: expected task 'classification' or 'regression', got {dataset.task!r}; set data.task")
    parts = (("training", dataset.train_x, dataset.train_y), ("test", dataset.test_x, dataset.test_y))
    for part, x, y in parts if tested else parts[:1]:
        if x.ndim != 2 or x.shape[1] != features or y.shape != (len(x),):
            raise InputError(
                f"{name}: expected {part} arrays of shape (rows, {features}) and (rows,), "
                f"got {x.shape} and {y.shape}; give one target to each row"
            )
        if features == 0 or len(x) == 0:
            raise InputError(
                f"{name}: expected at least one feature and one {part} row, got {features} features and {len(x)} rows; "
                "give more data or change data.test_fraction"
            )
        _check_finite(dataset, part, x)
        _check_targets(dataset, part, y)
    for label, values in (("mean", dataset.mean), ("scale", dataset.scale)):
        if values.shape != (features,) or not np.isfinite(values).all():
            raise InputError(f"{name}: expected {features} finite numbers as {label}, got shape {values.shape}")
    if not (dataset.scale > 0).all() or not dataset.target_scale > 0:
        raise InputError(f"{name}: expected scales above zero, got {min(dataset.scale.min(), dataset.target_scale)}")
    _check_clients(dataset)
    return dataset


def _check_finite(dataset: Dataset, part: str, x: np.ndarray) -> None:
    if x.dtype not in (np.float32, np.float64):
        raise InputError(f"{dataset.name}: expected floating-point {part} features, got {x.dtype}; convert them")
    if not np.isfinite(x).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise InputError(
            f"{dataset.name}: expected finite features, got {x[row, column]} in column "
            f"{dataset.feature_names[column]!r}, {part} row {row}; remove the row or fill in a value"
        )


def _check_targets(dataset: Dataset, part: str, y: np.ndarray) -> None:
    name = dataset.name
    if dataset.task == "regression":
        if y.dtype not in (np.float32, np.float64) or not np.isfinite(y).all() or dataset.classes != 0:
            raise InputError(
                f"{name}: expected finite floating-point {part} targets and 0 classes, got {y.dtype} targets"
            )
        return
    if dataset.classes < 2 or len(dataset.label_names) != dataset.classes:
        raise InputError(
            f"{name}: expected at least two labels, got {dataset.classes} ({', '.join(dataset.label_names)}); "
            "check the target column"
        )
    if y.dtype != np.int32 or y.min() < 0 or y.max() >= dataset.classes:
        raise InputError(
            f"{name}: expected int32 {part} labels from 0 to {dataset.classes - 1}, "
            f"got {y.dtype} from {y.min()} to {y.max()}; number the labels from 0"
        )


def _check_clients(dataset: Dataset) -> None:
    owners, names = dataset.client_of_row, dataset.client_names
    if owners is None:
        return
    if owners.shape != dataset.train_y.shape or owners.min() < 0 or owners.max() >= len(names):
        raise InputError(
            f"{dataset.name}: expected one of {len(names)} clients for each of {len(dataset.train_y)} training rows, "
            f"got shape {owners.shape}; check the client column"
        )
