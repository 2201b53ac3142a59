"""Protein (UCI, CASP 5 to 9): how far a predicted structure is from the true one, by nine measurements of it."""

from __future__ import annotations

import numpy as np

from fedstein.data.dataset import Dataset, fixed_split, scaled, standardisation, validate

ROWS = 45_730
FEATURE_NAMES = tuple(f"F{i}" for i in range(1, 10))
TEST = 0.2  # the share of test rows


def compact(features: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    """Store all rows as they are in the file.

    Raises:
        ValueError: If the number of rows or of columns is wrong.
    """
    if features.shape != (ROWS, len(FEATURE_NAMES)):
        raise ValueError(f"expected {ROWS} rows of {len(FEATURE_NAMES)} measurements, got shape {features.shape}")
    return {"features": np.ascontiguousarray(features, np.float64), "rmsd": np.asarray(targets, np.float64)}


def from_full(arrays: dict[str, np.ndarray]) -> Dataset:
    """Build the dataset: a fifth of the rows, always the same ones, are test rows; everything is standardised."""
    x, target = arrays["features"], arrays["rmsd"]
    train, test = fixed_split(np.zeros(len(target), np.int32), TEST)
    mean, scale = standardisation(x[train])
    target_mean, target_scale = float(target[train].mean()), float(target[train].std())
    features = scaled(x, mean, scale)
    y = ((target - target_mean) / target_scale).astype(np.float32)
    return validate(
        Dataset(
            name="protein",
            task="regression",
            train_x=features[train],
            train_y=y[train],
            test_x=features[test],
            test_y=y[test],
            classes=0,
            feature_names=FEATURE_NAMES,
            mean=mean,
            scale=scale,
            target_mean=target_mean,
            target_scale=target_scale,
        )
    )
