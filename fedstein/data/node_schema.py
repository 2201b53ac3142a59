"""Datasets whose rows stay with their nodes (`data.name = "nodes"`), as the server knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedstein.data.dataset import TASKS, Dataset
from fedstein.data.node_rows import Expectation, load_rows
from fedstein.data.scaling import Scaling, scale_rows, unscaled
from fedstein.errors import InputError


def expectation(
    features: Sequence[str] | None,
    target: str | None,
    task: str | None = None,
    labels: Sequence[str | int] | None = None,
) -> Expectation:
    """Build the columns that every node's file must have from the keys of `[data]`.

    Args:
        features: The names of the feature columns.
        target: The name of the column to predict.
        task: "classification" or "regression"; by default it is a classification if there are labels.
        labels: Every label that a node may have, for a classification.

    Returns:
        The required columns.

    Raises:
        InputError: If a key is missing or contradicts another one.
    """
    names = tuple(features or ())
    if not names or len(set(names)) < len(names) or not all(names):
        raise InputError(
            'expected data.features with data.name = "nodes": the columns that every node has, each once, '
            f"got {list(names)}"
        )
    if not target or target in names:
        raise InputError(
            'expected data.target with data.name = "nodes": the column to predict, none of data.features, '
            f"got {target!r}"
        )
    known = tuple(str(label) for label in labels or ())
    task = task or ("classification" if known else "regression")
    if task not in TASKS:
        raise InputError(f"expected data.task to be 'classification' or 'regression', got {task!r}")
    if task == "classification" and (len(known) < 2 or len(set(known)) < len(known)):
        raise InputError(
            f"expected data.labels for a classification: every label that a node may have, at least two, "
            f"got {list(known)}"
        )
    if task == "regression" and known:
        raise InputError(f"expected no data.labels for a regression, got {list(known)}; leave them out")
    return Expectation(names, target, task, known)


def load_nodes(
    *,
    features: Sequence[str] | None = None,
    target: str | None = None,
    task: str | None = None,
    labels: Sequence[str | int] | None = None,
    test_path: str | Path | None = None,
    standardize: bool = True,
) -> Dataset:
    """Make a dataset without training rows. Its test rows, if the server has any, stay raw until ``with_scaling``.

    Args:
        features: The names of the feature columns.
        target: The name of the column to predict.
        task: "classification" or "regression".
        labels: Every label that a node may have, for a classification.
        test_path: A file with test rows on the server.
        standardize: Not used here; the nodes' sums give the scaling later.

    Raises:
        InputError: If a key is missing or contradicts another one, or the test file does not fit.
    """
    expected = expectation(features, target, task, labels)
    width, classes = len(expected.features), len(expected.labels)
    kind: type = np.int32 if classes else np.float32
    test_x, test_y = load_rows(test_path, expected) if test_path else (np.zeros((0, width)), np.zeros(0, kind))
    plain = unscaled(width)
    return Dataset(
        name="nodes",
        task=expected.task,
        train_x=np.zeros((0, width), np.float32),
        train_y=np.zeros(0, kind),
        test_x=test_x,
        test_y=test_y,
        classes=classes,
        feature_names=expected.features,
        mean=plain.mean,
        scale=plain.scale,
        label_names=expected.labels,
        target_name=expected.target,
    )


def with_scaling(dataset: Dataset, scaling: Scaling) -> Dataset:
    """Scale the test rows once the scaling is known.

    Args:
        dataset: What ``load_nodes`` returned.
        scaling: The scaling that all nodes use.

    Returns:
        The dataset with scaled test rows and with the scaling.
    """
    test_x, test_y = scale_rows(dataset.test_x, dataset.test_y, scaling)
    return replace(
        dataset,
        test_x=test_x,
        test_y=test_y,
        mean=scaling.mean,
        scale=scaling.scale,
        target_mean=scaling.target_mean,
        target_scale=scaling.target_scale,
    )
