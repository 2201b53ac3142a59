"""Standardisation: by the rows in one place, or by sums over rows that stay where they are.

The sums are all that leaves a node, so two passes are needed: the first finds the mean m of every column, the second
the squared distances from it, without which 1e9 + noise would have no variance left in float64. With n rows,
d = sum (x - m) and s = sum (x - m)^2, the second pass also mends the rounding of the first: mean = m + d / n and
variance = (s - d^2 / n) / n. A column of equal values has s = d^2 / n. A column of only 0 and 1 has no value that is
something else. Nothing is a minimum or a maximum, which could not be had from a sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fedstein.data.dataset import scaled, standardisation
from fedstein.errors import FedsteinError, InputError

Arrays = dict[str, np.ndarray]
Shapes = dict[str, tuple[tuple[int, ...], str]]  # name -> shape and dtype
EQUAL = 1e-11  # s - d^2/n of very many equal values is rounding: less than this share of s


class Scaling(NamedTuple):
    """A model sees `(x - mean) / scale` and, in regression, `(y - target_mean) / target_scale`."""

    mean: np.ndarray  # float64, f
    scale: np.ndarray  # float64, f
    target_mean: float = 0.0
    target_scale: float = 1.0


def unscaled(features: int) -> Scaling:
    """The scaling that leaves everything alone."""
    return Scaling(np.zeros(features), np.ones(features))


def pooled(x: np.ndarray, y: np.ndarray | None) -> Scaling:
    """The scaling found with all raw rows in one place; y None for classification."""
    mean, scale = standardisation(x)
    if y is None:
        return Scaling(mean, scale)
    return Scaling(mean, scale, float(y.mean()), float(y.std()) if y.min() < y.max() else 1.0)


def scale_rows(x: np.ndarray, y: np.ndarray, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
    """Raw rows as a model sees them: float32 features and targets; int32 classes stay as they are."""
    if y.dtype.kind == "f":
        y = scaled(y, np.array(scaling.target_mean), np.array(scaling.target_scale))
    return scaled(x, scaling.mean, scaling.scale), y


def first_sums(x: np.ndarray, y: np.ndarray | None) -> Arrays:
    """What a node sends first: how many raw rows, and of every column the sum and how many values are not 0 or 1."""
    sums = {
        "count": np.array(len(x), np.float64),
        "sum": _sum(x),
        "other": _sum((x != 0) & (x != 1)),
    }
    return sums if y is None else sums | {"target_sum": _sum(y)}


def mean_from(total: Arrays) -> Arrays:
    """What the server sends back: the mean of every column, from the nodes' first sums added up."""
    count = total.get("count", np.zeros(()))
    if not count >= 1:
        raise InputError(f"expected rows to scale with, got {count:g}; give at least one node a file that fits")
    names = {"sum": "mean", "target_sum": "target_mean"}
    return {mean: np.asarray(total[name] / count) for name, mean in names.items() if name in total}


def second_sums(x: np.ndarray, y: np.ndarray | None, mean: Arrays) -> Arrays:
    """What a node sends next: how many rows, and of every column the sum of its distances from that mean, and of their
    squares."""
    away = x - mean["mean"]
    sums = {"count": np.array(len(x), np.float64), "distance": _sum(away), "square": _sum(away**2)}
    if y is None:
        return sums
    away = y - mean["target_mean"]
    return sums | {"target_distance": _sum(away), "target_square": _sum(away**2)}


def scale_from(total1: Arrays, total2: Arrays) -> Scaling:
    """The scaling from both passes' sums, each added up over the same nodes; as `pooled` has it, up to rounding."""
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
    """The nodes' sums added up, name by name."""
    total: Arrays = {}
    for part in parts:
        total = {name: np.asarray(total[name] + array) for name, array in part.items()} if total else part
    return total


def sum_shapes(features: int, task: str) -> tuple[Shapes, Shapes]:
    """The arrays of `first_sums` and of `second_sums`: name -> (shape, dtype), for a server to check what arrives."""
    column, number = ((features,), "float64"), ((), "float64")
    first: Shapes = {"count": number, "sum": column, "other": column}
    second: Shapes = {"count": number, "distance": column, "square": column}
    if task == "regression":
        first |= {"target_sum": number}
        second |= {"target_distance": number, "target_square": number}
    return first, second


def _sum(values: np.ndarray) -> np.ndarray:
    """The sum over rows in float64. NumPy adds pairwise, which loses less, only where values lie one after another."""
    return np.asarray(np.ascontiguousarray(values.T, dtype=np.float64).sum(axis=-1))


def _moments(
    count: np.ndarray, mean: np.ndarray, distance: np.ndarray, square: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    about = square - distance**2 / count
    equal = about <= EQUAL * square
    return mean + distance / count, np.where(equal, 1.0, np.sqrt(np.where(equal, 1.0, about) / count))
