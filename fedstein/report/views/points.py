"""Numbers that travel: few enough to draw, short enough to send, and None where there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

POINTS = 400  # of a curve
DIGITS = 5


def short(value: Any) -> float | int | None:
    """A number with five significant digits; None where it is missing or not finite."""
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
        The merged numbers, NaN where a group has none.
    """
    count = values.shape[-1]
    groups = -(-count // size) if count else 0
    padded = np.full((*values.shape[:-1], groups * size), np.nan)
    padded[..., :count] = values
    parts = padded.reshape(*values.shape[:-1], groups, size)
    known = ~np.isnan(parts)
    filled = known.any(axis=-1)
    if how == "last":
        return values[..., np.minimum(np.arange(1, groups + 1) * size, count) - 1].astype(np.float64)
    if how == "min":
        merged = np.where(known, parts, np.inf).min(axis=-1, initial=np.inf)
    elif how == "max":
        merged = np.where(known, parts, -np.inf).max(axis=-1, initial=-np.inf)
    else:
        merged = np.where(known, parts, 0).sum(axis=-1)
        merged = merged / np.maximum(known.sum(axis=-1), 1) if how == "mean" else merged
    return np.where(filled, merged, np.nan)
