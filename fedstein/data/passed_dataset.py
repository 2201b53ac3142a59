"""The rows that were passed to ``fedstein.fit`` as one dataset."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedstein.data.counts import refuse_no_counts
from fedstein.data.dataset import Dataset, scaled, validate
from fedstein.data.dates import refuse_passed_dates
from fedstein.data.frames import no_value
from fedstein.data.label_coding import Label, code_labels, coded, label_kind
from fedstein.data.passed import PassedClients, Rows
from fedstein.data.scaling import add, first_sums, mean_from, scale_from, second_sums
from fedstein.errors import InputError


def as_dataset(
    clients: PassedClients, test: Rows | None, task: str, declared: int | None, precision: Any
) -> tuple[Dataset, tuple[Label, ...]]:
    """All clients' rows as one validated dataset.

    Args:
        clients: The clients.
        test: Test rows; None if there are none.
        task: ``"classification"`` or ``"regression"``.
        declared: For a model of the user's own, the number of its classes (0: as many as there are labels); None for
            the models that a config can name.
        precision: The type of the targets of a regression.

    Returns:
        The dataset, without test rows if none were passed, and the label of each class.

    Raises:
        InputError: Targets are not labels, or not numbers.
    """
    called, parts = clients.called(), [y for _, y in clients.rows]
    held = test[1] if test is not None else None
    refuse_passed_dates(parts, called)
    if task == "classification":
        labels, targets, test_y = _classes(parts, called, held, declared)
    else:
        labels, targets = (), [_real(y, name, precision) for y, name in zip(parts, called, strict=True)]
        test_y = np.zeros(0, precision) if held is None else _real(held, "test", precision)
    x = np.concatenate([x for x, _ in clients.rows])
    width, encoding = x.shape[1], clients.columns.encoding
    sizes = [len(y) for y in targets]
    dataset = Dataset(
        name="clients",
        task=task,
        train_x=x,
        train_y=np.concatenate(targets),
        test_x=test[0] if test is not None else np.zeros((0, width), x.dtype),
        test_y=test_y,
        classes=len(labels),
        feature_names=encoding.feature_names if encoding is not None else tuple(f"x{i}" for i in range(width)),
        mean=np.zeros(width),
        scale=np.ones(width),
        label_names=tuple(map(str, labels)),
        target_name=clients.columns.target,
        client_names=clients.names,
        client_of_row=np.repeat(np.arange(len(sizes)), sizes),
        label_kind=label_kind(labels),
        encoding=encoding,
    )
    return validate(dataset, tested=test is not None), labels


def refuse_others(dataset: Dataset, called: Sequence[str]) -> None:
    """Refuse targets that are not counts, client by client.

    Args:
        dataset: The result of ``as_dataset``.
        called: What messages call each client.

    Raises:
        InputError: A target is not a whole number from 0.
    """
    for name, (_, y) in zip(called, rows_by_client(dataset), strict=True):
        refuse_no_counts(y, name)
    refuse_no_counts(dataset.test_y, "test")


def standardised(dataset: Dataset, target: bool) -> Dataset:
    """Scale the rows like rows of files: numeric columns to mean 0 and sd 1; columns of only 0 and 1 are not scaled.

    The scaling is computed from the training rows, by the sums that every client would send
    (``fedstein.data.scaling``).

    Args:
        dataset: The result of ``as_dataset``.
        target: Whether to scale the target of a regression too; never for counts.

    Returns:
        The scaled dataset, which knows its scaling.
    """
    parts = [(x.astype(np.float64), y.astype(np.float64) if target else None) for x, y in rows_by_client(dataset)]
    kept = dataset.encoding.binary_fills if dataset.encoding is not None else np.full(dataset.train_x.shape[1], np.nan)
    fills = kept.astype(dataset.train_x.dtype).astype(np.float64)  # rounded in the same way as the rows
    first = add(first_sums(*part, fills) for part in parts)
    scaling = scale_from(first, add(second_sums(*part, mean_from(first)) for part in parts))
    precision, middle, unit = dataset.train_x.dtype, np.array(scaling.target_mean), np.array(scaling.target_scale)

    def targets(y: np.ndarray) -> np.ndarray:
        return scaled(y, middle, unit, y.dtype) if target else y

    return replace(
        dataset,
        train_x=scaled(dataset.train_x, scaling.mean, scaling.scale, precision),
        test_x=scaled(dataset.test_x, scaling.mean, scaling.scale, precision),
        train_y=targets(dataset.train_y),
        test_y=targets(dataset.test_y),
        **scaling._asdict(),
    )


def rows_by_client(dataset: Dataset) -> list[Rows]:
    """The rows of each client, in the order in which they were passed.

    Args:
        dataset: The result of ``as_dataset``, or the same dataset from a run folder.
    """
    assert dataset.client_of_row is not None, "rows that were passed have owners"
    sizes = np.bincount(dataset.client_of_row, minlength=len(dataset.client_names))
    edges = np.cumsum([0, *sizes])
    return [(dataset.train_x[a:b], dataset.train_y[a:b]) for a, b in itertools.pairwise(edges)]


def _classes(
    parts: Sequence[np.ndarray], called: Sequence[str], test: np.ndarray | None, declared: int | None
) -> tuple[tuple[Label, ...], list[np.ndarray], np.ndarray]:
    """The label of each class, and the class indices of the clients and of the test rows."""
    own, numeric = declared is not None, all(np.asarray(y).dtype.kind in "biuf" for y in parts)
    if test is not None and numeric:  # if labels are numbers, test rows may have classes that no client has
        labels, codes = code_labels([*parts, test], [*called, "test"], own)
        targets, test_y = codes[:-1], codes[-1]
    else:
        labels, targets = code_labels(parts, called, own)
        test_y = np.zeros(0, np.int32) if test is None else coded(test, labels, "test")
    if not own and len({code for part in targets for code in part.tolist()}) == 1:
        raise InputError(
            f"expected targets of at least two classes, got {labels[targets[0][0]]!r} in every row of every client; "
            "add rows of another class"
        )
    least = max(2, declared or 0)
    if label_kind(labels) == "int" and labels == tuple(range(len(labels))):
        labels = tuple(range(declared or max(least, len(labels))))
    elif declared and len(labels) != declared:
        raise InputError(
            f"the model has {declared} classes, the clients have the labels {', '.join(map(repr, labels[:10]))}; "
            "number them from 0 to say which class each is"
        )
    return labels, targets, test_y


def _real(y: np.ndarray, name: str, precision: Any) -> np.ndarray:
    if y.dtype.kind not in "biuf":
        try:
            if any(isinstance(value, str) for value in y.tolist()):
                raise TypeError
            y = np.array([np.nan if no_value(value) else float(value) for value in y.tolist()])
        except (TypeError, ValueError):
            raise InputError(f"{name}: expected numbers as targets, got {y.dtype}; this is a regression") from None
    found = y.astype(precision)
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found))[0])
        raise InputError(f"{name}: expected a finite target, got {y[row]} in row {row}; remove the row")
    return found
