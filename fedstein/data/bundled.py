"""The small sets that scikit-learn ships, with fixed splits."""

from __future__ import annotations

import numpy as np

from fedstein.data.dataset import Dataset, fixed_split, scaled, standardisation, validate


def digits() -> Dataset:
    """8 x 8 images of ten digits, scaled by 16; a quarter of each digit is test data."""
    from sklearn.datasets import load_digits

    source = load_digits()
    raw, labels = source.data, source.target.astype(np.int32)
    train, test = fixed_split(labels, 0.25)
    mean, scale = np.zeros(raw.shape[1]), np.full(raw.shape[1], 16.0)
    x = scaled(raw, mean, scale)
    return validate(
        Dataset(
            name="digits",
            task="classification",
            train_x=x[train],
            train_y=labels[train],
            test_x=x[test],
            test_y=labels[test],
            classes=10,
            feature_names=tuple(source.feature_names),
            mean=mean,
            scale=scale,
            label_names=tuple(str(name) for name in source.target_names),
        )
    )


def breast_cancer() -> Dataset:
    """Malignant (0) or benign (1) from 30 measurements; a fifth of each label is test data."""
    from sklearn.datasets import load_breast_cancer

    source = load_breast_cancer()
    labels = source.target.astype(np.int32)
    train, test = fixed_split(labels, 0.2)
    mean, scale = standardisation(source.data[train])
    x = scaled(source.data, mean, scale)
    return validate(
        Dataset(
            name="breast_cancer",
            task="classification",
            train_x=x[train],
            train_y=labels[train],
            test_x=x[test],
            test_y=labels[test],
            classes=2,
            feature_names=tuple(str(name) for name in source.feature_names),
            mean=mean,
            scale=scale,
            label_names=tuple(str(name) for name in source.target_names),
        )
    )


def diabetes() -> Dataset:
    """Disease progression after a year from ten measurements; a fifth of the rows is test data."""
    from sklearn.datasets import load_diabetes

    source = load_diabetes(scaled=False)
    target = np.asarray(source.target, np.float64)
    train, test = fixed_split(np.zeros(len(target), np.int32), 0.2)
    mean, scale = standardisation(source.data[train])
    target_mean, target_scale = float(target[train].mean()), float(target[train].std())
    x = scaled(source.data, mean, scale)
    y = ((target - target_mean) / target_scale).astype(np.float32)
    return validate(
        Dataset(
            name="diabetes",
            task="regression",
            train_x=x[train],
            train_y=y[train],
            test_x=x[test],
            test_y=y[test],
            classes=0,
            feature_names=tuple(source.feature_names),
            mean=mean,
            scale=scale,
            target_mean=target_mean,
            target_scale=target_scale,
        )
    )
