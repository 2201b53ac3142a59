"""Standardisation, either from all rows in one place or from sums over rows that stay on their nodes.

A node sends only sums, in two passes. The first pass gives the mean m of every column. The second pass gives the sums
d = sum (x - m) and s = sum (x - m)^2 over n rows. Two passes are needed because a column such as 1e9 + noise has no
variance left in float64 if the mean is not subtracted first. The second pass also corrects the rounding of the first:

    mean = m + d / n,    variance = (s - d^2 / n) / n.

A column of equal values has s = d^2 / n. A column of only 0 and 1 is recognised because the count of its other values
is zero; the mean that has replaced its missing values is not counted among them. Minima and maxima are not used,
because sums do not give them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fedstein.data.dataset import Dataset, scaled, standardisation
from fedstein.errors import FedsteinError, InputError

Arrays = dict[str, np.ndarray]
Shapes = dict[str, tuple[tuple[int, ...], str]]  # name -> shape and dtype
EQUAL = 1e-11  # below this share of s, s - d^2/n is a rounding error, and all values are equal


class Scaling(NamedTuple):
    """A model takes `(x - mean) / scale` and, for a regression, `(y - target_mean) / target_scale`."""

    mean: np.ndarray  # float64, f
    scale: np.ndarray  # float64, f
    target_mean: float = 0.0
    target_scale: float = 1.0


def scaling_of(dataset: Dataset) -> Scaling:
    """Return the scaling that a dataset was made with."""
    return Scaling(dataset.mean, dataset.scale, dataset.target_mean, dataset.target_scale)


def unscaled(features: int) -> Scaling:
    """Return the scaling that changes nothing, for a number of features."""
    return Scaling(np.zeros(features), np.ones(features))


def pooled(x: np.ndarray, y: np.ndarray | None, fills: np.ndarray | float = np.nan) -> Scaling:
    """Compute the scaling from all raw rows in one place.

    Args:
        x: The raw rows, n x f.
        y: The targets of a regression, or None for a classification.
        fills: As for ``first_sums``.
    """
    mean, scale = standardisation(x, fills)
    if y is None:
        return Scaling(mean, scale)
    return Scaling(mean, scale, float(y.mean()), float(y.std()) if y.min() < y.max() else 1.0)


def scale_rows(x: np.ndarray, y: np.ndarray, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
    """Scale raw rows.

    Args:
        x: The raw rows.
        y: Class indices, which stay as they are, or the raw targets of a regression.
        scaling: The scaling.

    Returns:
        Features in float32, and int32 classes or float32 targets.
    """
    if y.dtype.kind == "f":
        y = scaled(y, np.array(scaling.target_mean), np.array(scaling.target_scale))
    return scaled(x, scaling.mean, scaling.scale), y


def first_sums(x: np.ndarray, y: np.ndarray | None, fills: np.ndarray | float = np.nan) -> Arrays:
    """Compute the sums that a node sends in the first pass.

    Args:
        x: The node's raw rows.
        y: The targets of a regression, or None for a classification.
        fills: For each column the number that has replaced missing values of a 0/1 column (``Encoding.binary_fills``);
            NaN if there is none.

    Returns:
        ``count``, and for every column the ``sum`` and the number of values ``other`` than 0, 1 and the fill; for a
        regression also ``target_sum``.
    """
    sums = {
        "count": np.array(len(x), np.float64),
        "sum": _sum(x),
        "other": _sum((x != 0) & (x != 1) & (x != fills)),
    }
    return sums if y is None else sums | {"target_sum": _sum(y)}


def mean_from(total: Arrays) -> Arrays:
    """Compute the means that the server sends back after the first pass.

    Args:
        total: The first sums, added over the nodes.

    Returns:
        ``mean`` and, for a regression, ``target_mean``.

    Raises:
        InputError: If the nodes have no rows.
    """
    count = total.get("count", np.zeros(()))
    if not count >= 1:
        raise InputError(f"expected rows to scale with, got {count:g}; give at least one node a file that fits")
    names = {"sum": "mean", "target_sum": "target_mean"}
    return {mean: np.asarray(total[name] / count) for name, mean in names.items() if name in total}


def second_sums(x: np.ndarray, y: np.ndarray | None, mean: Arrays) -> Arrays:
    """Compute the sums that a node sends in the second pass.

    Args:
        x: The node's raw rows.
        y: The targets of a regression, or None for a classification.
        mean: The result of ``mean_from``.

    Returns:
        ``count``, and for every column the sum of ``distance`` x - m and of its ``square``; for a regression also those
        of the target.
    """
    away = x - mean["mean"]
    sums = {"count": np.array(len(x), np.float64), "distance": _sum(away), "square": _sum(away**2)}
    if y is None:
        return sums
    away = y - mean["target_mean"]
    return sums | {"target_distance": _sum(away), "target_square": _sum(away**2)}


def scale_from(total1: Arrays, total2: Arrays) -> Scaling:
    """Compute the scaling from the sums of both passes.

    Args:
        total1: The first sums, added over the nodes.
        total2: The second sums, added over the same nodes.

    Returns:
        The same scaling as ``pooled``, up to rounding.

    Raises:
        FedsteinError: If the two passes counted different numbers of rows.
    """
    found, count = mean_from(total1), total1["count"]
    if total2["count"] != count:
        raise FedsteinError(
            f"expected both passes' sums over the same rows, got {count:g} and {total2['count']:g}; "
            "leave a node that was lost out of both"
        )
    mean, scale = _moments(count, found["mean"], total2["distance"], total2["square"])
    binary = total1["other"] == 0
    mean, scale = np.where(binary, 0.0, mean), np.where(binary, 1.0, scale)
    if "target_mean" not in found:
        return Scaling(mean, scale)
    target = _moments(count, found["target_mean"], total2["target_distance"], total2["target_square"])
    return Scaling(mean, scale, float(target[0]), float(target[1]))


def add(parts: Iterable[Arrays]) -> Arrays:
    """Add the sums of several nodes, name by name."""
    total: Arrays = {}
    for part in parts:
        total = {name: np.asarray(total[name] + array) for name, array in part.items()} if total else part
    return total


def sum_shapes(features: int, task: str) -> tuple[Shapes, Shapes]:
    """Return the shapes of ``first_sums`` and ``second_sums``, so that a server can check what arrives.

    Args:
        features: The number of features.
        task: "classification" or "regression".

    Returns:
        Two mappings from the name to the shape and the dtype.
    """
    column, number = ((features,), "float64"), ((), "float64")
    first: Shapes = {"count": number, "sum": column, "other": column}
    second: Shapes = {"count": number, "distance": column, "square": column}
    if task == "regression":
        first |= {"target_sum": number}
        second |= {"target_distance": number, "target_square": number}
    return first, second


def _sum(values: np.ndarray) -> np.ndarray:
    """Sum over rows in float64. NumPy uses the more accurate pairwise sum only along contiguous memory."""
    return np.asarray(np.ascontiguousarray(values.T, dtype=np.float64).sum(axis=-1))


def _moments(
    count: np.ndarray, mean: np.ndarray, distance: np.ndarray, square: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    about = square - distance**2 / count
    equal = about <= EQUAL * square
    return mean + distance / count, np.where(equal, 1.0, np.sqrt(np.where(equal, 1.0, about) / count))
