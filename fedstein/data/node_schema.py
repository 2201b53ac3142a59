"""Datasets whose rows stay with their nodes (`data.name = "nodes"`), as the server knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.data.dataset import TASKS, Dataset
from fedstein.data.encoding import known_categories, known_encoding
from fedstein.data.node_rows import Expectation, load_rows
from fedstein.data.scaling import Scaling, scale_rows, unscaled
from fedstein.data.table import listed
from fedstein.errors import InputError


def expectation(
    features: Sequence[str] | None,
    target: str | None,
    task: str | None = None,
    labels: Sequence[str | int] | None = None,
    categories: Mapping[str, Sequence[Any]] | Sequence[str] | None = None,
    coding: str | None = None,
    missing: str | None = None,
    fill: Mapping[str, float | str] | None = None,
) -> Expectation:
    """Build the columns that every node's file must have from the keys of `[data]`.

    Args:
        features: The names of the feature columns.
        target: The name of the column to predict.
        task: "classification" or "regression"; by default it is a classification if there are labels.
        labels: Every label that a node may have, for a classification.
        categories: The categories of each column that has some.
        coding: "one-hot" or "reference".
        missing: What to do with missing values.
        fill: The value that replaces a missing value in each column.

    Returns:
        The required columns. All of them count as numbers until the nodes have been asked about them (``is_open``).

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
    lists = known_categories(categories)
    if unknown := [name for name in lists if name not in names]:
        raise InputError(
            f"data.categories: expected names of feature columns, got {unknown[0]!r}; the features are {listed(names)}"
        )
    if fill is not None and missing is None:
        raise InputError("data.fill goes with data.missing; set it, or leave data.fill out")
    if is_open(categories, missing, fill) or not (lists or missing):
        return Expectation(names, target, task, known)
    return Expectation(names, target, task, known, known_encoding(names, lists, coding, missing, fill))


def is_open(
    categories: Mapping[str, Sequence[Any]] | Sequence[str] | None,
    missing: str | None,
    fill: Mapping[str, float | str] | None,
) -> bool:
    """Tell whether the nodes must still be asked for categories, or for the values that replace missing ones.

    They are not asked if all lists of categories are given and, with ``missing``, also ``fill``. ``{}`` as
    ``categories`` says that no column has categories.

    Args:
        categories: The value of ``data.categories``.
        missing: The value of ``data.missing``.
        fill: The value of ``data.fill``.

    Returns:
        Whether the nodes must be asked.
    """
    if categories is None or (missing is not None and fill is None):
        return True
    return any(not names for names in known_categories(categories).values())


def load_nodes(
    *,
    features: Sequence[str] | None = None,
    target: str | None = None,
    task: str | None = None,
    labels: Sequence[str | int] | None = None,
    categories: Mapping[str, Sequence[Any]] | Sequence[str] | None = None,
    coding: str | None = None,
    missing: str | None = None,
    fill: Mapping[str, float | str] | None = None,
    test_path: str | Path | None = None,
    standardize: bool = True,
) -> Dataset:
    """Make a dataset without training rows. Its test rows, if the server has any, stay raw until ``with_scaling``.

    Args:
        features: The names of the feature columns.
        target: The name of the column to predict.
        task: "classification" or "regression".
        labels: Every label that a node may have, for a classification.
        categories: The categories of each column that has some.
        coding: "one-hot" or "reference".
        missing: What to do with missing values.
        fill: The value that replaces a missing value in each column.
        test_path: A file with test rows on the server.
        standardize: Not used here; the nodes' sums give the scaling later.

    Raises:
        InputError: If a key is missing or contradicts another one, or the test file does not fit.
    """
    expected = expectation(features, target, task, labels, categories, coding, missing, fill)
    names = expected.features if expected.encoding is None else expected.encoding.feature_names
    width, classes = len(names), len(expected.labels)
    kind: type = np.int32 if classes else np.float32
    readable = test_path if not is_open(categories, missing, fill) else None
    test_x, test_y = load_rows(readable, expected) if readable else (np.zeros((0, width)), np.zeros(0, kind))
    plain = unscaled(width)
    return Dataset(
        name="nodes",
        task=expected.task,
        train_x=np.zeros((0, width), np.float32),
        train_y=np.zeros(0, kind),
        test_x=test_x,
        test_y=test_y,
        classes=classes,
        feature_names=names,
        mean=plain.mean,
        scale=plain.scale,
        label_names=expected.labels,
        target_name=expected.target,
        encoding=expected.encoding,
    )


def with_scaling(dataset: Dataset, scaling: Scaling) -> Dataset:
    """Scale the test rows once the scaling is known.

    Args:
        dataset: The result of ``load_nodes``.
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
