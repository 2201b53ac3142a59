"""The small datasets that scikit-learn ships, with a fixed split into training and test rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedstein.data.dataset import Dataset, fixed_split, scaled, standardisation, validate

Split = tuple[np.ndarray, np.ndarray]  # the numbers of the training rows and of the test rows


def digits() -> Dataset:
    """Load images of ten digits, 8 x 8 pixels, divided by 16. A quarter of the images of each digit are test rows."""
    from sklearn.datasets import load_digits

    source = load_digits()
    labels = source.target.astype(np.int32)
    mean, scale = np.zeros(source.data.shape[1]), np.full(source.data.shape[1], 16.0)
    names = tuple(str(name) for name in source.target_names)
    return _dataset("digits", source, labels, fixed_split(labels, 0.25), mean, scale, label_names=names)


def breast_cancer() -> Dataset:
    """Load 30 measurements of tumours: malignant (0) or benign (1). A fifth of the rows of each label are test rows."""
    from sklearn.datasets import load_breast_cancer

    source = load_breast_cancer()
    labels = source.target.astype(np.int32)
    split = fixed_split(labels, 0.2)
    names = tuple(str(name) for name in source.target_names)
    return _dataset("breast_cancer", source, labels, split, *standardisation(source.data[split[0]]), label_names=names)


def diabetes() -> Dataset:
    """Load ten measurements of patients and the progression of their disease after a year. A fifth are test rows."""
    from sklearn.datasets import load_diabetes

    source = load_diabetes(scaled=False)
    target = np.asarray(source.target, np.float64)
    split = fixed_split(np.zeros(len(target), np.int32), 0.2)
    target_mean, target_scale = float(target[split[0]].mean()), float(target[split[0]].std())
    y = ((target - target_mean) / target_scale).astype(np.float32)
    mean, scale = standardisation(source.data[split[0]])
    return _dataset("diabetes", source, y, split, mean, scale, target_mean=target_mean, target_scale=target_scale)


def _dataset(
    name: str,
    source: Any,
    y: np.ndarray,
    split: Split,
    mean: np.ndarray,
    scale: np.ndarray,
    *,
    label_names: Sequence[str] = (),
    target_mean: float = 0.0,
    target_scale: float = 1.0,
) -> Dataset:
    x = scaled(source.data, mean, scale)
    train, test = split
    return validate(
        Dataset(
            name=name,
            task="classification" if label_names else "regression",
            train_x=x[train],
            train_y=y[train],
            test_x=x[test],
            test_y=y[test],
            classes=len(label_names),
            feature_names=tuple(str(feature) for feature in source.feature_names),
            mean=mean,
            scale=scale,
            target_mean=target_mean,
            target_scale=target_scale,
            label_names=tuple(label_names),
        )
    )
