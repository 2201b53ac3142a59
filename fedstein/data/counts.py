"""Counts as targets: whole numbers from 0 in their own units, which are never standardised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedstein.data.dataset import Dataset
from fedstein.errors import InputError

ROUNDING = 2e-7  # the rounding error of standardising in float32 and back, relative to the largest deviation
REMEDY = "give the counts themselves, neither scaled nor as logarithms, or choose model.kind = 'linear'"


def with_counts(dataset: Dataset) -> Dataset:
    """Undo the standardisation of targets.

    Args:
        dataset: A regression whose targets are counts in their own units.

    Returns:
        The dataset with the counts as targets, a target mean of 0 and a target scale of 1.

    Raises:
        InputError: A target is not a whole number from 0.
    """
    train, test = (_restored(dataset, y) for y in (dataset.train_y, dataset.test_y))
    refuse_no_counts(train, dataset.name)
    refuse_no_counts(test, f"{dataset.name}, test rows")
    return replace(dataset, train_y=train, test_y=test, target_mean=0.0, target_scale=1.0)


def refuse_no_counts(y: np.ndarray, name: str) -> None:
    """Refuse targets that are not counts.

    Args:
        y: Targets in their own units.
        name: What messages call these rows.

    Raises:
        InputError: A target is not a whole number from 0. The message has the first such value.
    """
    wrong = np.flatnonzero(~((y >= 0) & (np.floor(y) == y)))
    if len(wrong):
        row = int(wrong[0])
        raise InputError(f"{name}: expected counts, whole numbers from 0, got y = {y[row]:g} in row {row}; {REMEDY}")


def _restored(dataset: Dataset, y: np.ndarray) -> np.ndarray:
    """Return targets in their own units. A number that differs from a whole number only by rounding becomes whole."""
    if (dataset.target_mean, dataset.target_scale) == (0.0, 1.0) or not len(y):
        return y
    away = y.astype(np.float64) * dataset.target_scale
    raw = away + dataset.target_mean
    near = np.abs(raw - np.round(raw)) <= ROUNDING * max(1.0, float(np.max(np.abs(away))))
    found: np.ndarray = np.where(near, np.round(raw), raw).astype(y.dtype)
    return found
