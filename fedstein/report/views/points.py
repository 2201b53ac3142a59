"""Numbers for the page: merged so that few points are drawn, rounded so that they are short, None if missing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

POINTS = 400  # of a curve
DIGITS = 5


def short(value: Any) -> float | int | None:
    """A number with five significant digits; None if it is missing or not finite."""
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        return None
    rounded = float(f"{number:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def shorts(values: Iterable[Any]) -> list[float | int | None]:
    """``short`` of every number."""
    return [short(value) for value in values]


def step(count: int, limit: int = POINTS) -> int:
    """How many neighbours share a point: the least power of two that leaves at most ``limit`` points.

    Powers of two keep the points in place while a run grows.
    """
    return 1 << max(0, math.ceil(math.log2(count / limit))) if count > limit else 1


def bucketed(values: NDArray[Any], size: int, how: str) -> NDArray[np.float64]:
    """Merge neighbours on the last axis.

    Args:
        values: Numbers; NaN are left out.
        size: How many neighbours are merged; the last group may be smaller.
        how: "mean", "min", "max", "sum" or "last".

    Returns:
        The merged numbers, NaN if a group has none.
    """
    count = values.shape[-1]
    groups = -(-count // size) if count else 0
    padded = np.full((*values.shape[:-1], groups * size), np.nan)
    padded[..., :count] = values
    parts = padded.reshape(*values.shape[:-1], groups, size)
    if how == "last":
        return values[..., np.minimum(np.arange(1, groups + 1) * size, count) - 1].astype(np.float64)
    return merged(np.moveaxis(parts, -1, 0), how)


def merged(values: NDArray[Any], how: str) -> NDArray[np.float64]:
    """Merge the entries of the first axis, for instance seeds.

    Args:
        values: Numbers; NaN are left out.
        how: "mean", "min", "max" or "sum".

    Returns:
        The merged numbers, NaN if there is none to merge.
    """
    if how in ("min", "max"):
        least = (np.fmin if how == "min" else np.fmax).reduce(values, axis=0, initial=np.nan)
        return np.asarray(least, np.float64)
    known = (~np.isnan(values)).sum(axis=0)
    total = np.nansum(values, axis=0, dtype=np.float64)
    return np.where(known > 0, total / np.maximum(known, 1) if how == "mean" else total, np.nan)
