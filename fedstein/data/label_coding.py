"""Class labels of any type as the indices 0, 1, ... that models use, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedstein.data.frames import no_value
from fedstein.errors import InputError

Label = str | int | bool
KINDS = {str: "text", int: "int", bool: "bool"}  # how ``data.json`` remembers the type of labels


def code_labels(
    parts: Sequence[np.ndarray], names: Sequence[str], numbered: bool = False
) -> tuple[tuple[Label, ...], list[np.ndarray]]:
    """Number the labels of several clients.

    Whole numbers from 0 on are the class indices themselves, even if a number between them does not occur. Other labels
    (text, truth values, numbers from 1 on or below zero) are numbered in sorted order.

    Args:
        parts: The labels of each client.
        names: What messages call each client.
        numbered: Whether all numbers are the class indices themselves, as for a model of the user's own.

    Returns:
        The label of each class, and the class indices of each client (int32).

    Raises:
        InputError: A label is missing or is a fraction, or labels have different types.
    """
    cleaned = [_cleaned(np.asarray(part), name) for part, name in zip(parts, names, strict=True)]
    kinds = {part.dtype.kind for part in cleaned}
    if len({"i" if kind == "b" else kind for kind in kinds}) > 1:
        shown = ", ".join(f"{name} has {_shown(part)}" for name, part in zip(names, cleaned, strict=True))
        raise InputError(f"expected labels of one type, text or numbers, got both: {shown[:200]}")
    together = np.concatenate(cleaned)
    whole = kinds != {"U"}
    if kinds == {"b"} and not numbered:
        return (False, True), [part.astype(np.int32) for part in cleaned]
    if whole and (numbered or together.min() == 0 or (together.min() > 0 and together.max() == 1)):
        return tuple(range(int(together.max()) + 1)), [part.astype(np.int32) for part in cleaned]
    distinct = np.unique(together)
    labels = tuple(int(label) if whole else str(label) for label in distinct)
    return labels, [np.searchsorted(distinct, part).astype(np.int32) for part in cleaned]


def coded(y: np.ndarray, labels: Sequence[Label], name: str) -> np.ndarray:
    """The class indices of further rows.

    Args:
        y: Their labels.
        labels: The label of each class.
        name: What messages call the rows.

    Returns:
        int32 indices.

    Raises:
        InputError: A label is not among ``labels``.
    """
    index = {label: code for code, label in enumerate(labels)}
    found = [value if not isinstance(value, np.generic) else value.item() for value in _cleaned(np.asarray(y), name)]
    wrong = next((value for value in found if value not in index), None)
    if wrong is not None:
        shown = ", ".join(map(repr, labels[:10]))
        raise InputError(f"{name}: expected one of the labels {shown}, got {wrong!r}; no client has it")
    return np.array([index[value] for value in found], np.int32)


def label_kind(labels: Sequence[Label]) -> str:
    """The type of the labels, in the form of ``data.json``."""
    return KINDS[type(labels[0])] if labels else "text"


def read_labels(names: Sequence[str], kind: str) -> tuple[Label, ...]:
    """Labels from their text and their type."""
    if kind == "int":
        return tuple(int(name) for name in names)
    return tuple(name == "True" for name in names) if kind == "bool" else tuple(names)


def _cleaned(y: np.ndarray, name: str) -> np.ndarray:
    """Labels as an array of truth values, whole numbers or text."""
    if y.dtype.kind in "biu":
        return y
    if y.dtype.kind == "f":
        if not np.isfinite(y).all():
            raise InputError(f"{name}: expected a label in every row, got {y[~np.isfinite(y)][0]}; remove the row")
        if not np.array_equal(y, np.floor(y)):
            raise InputError(
                f"{name}: expected integer labels or text, got {y.dtype} values such as {y[y != np.floor(y)][0]:g}; is "
                "this a regression?"
            )
        return y.astype(np.int64)
    values = y.tolist()
    for row, value in enumerate(values):
        if no_value(value):
            raise InputError(f"{name}: expected a label in every row, got none in row {row}; remove the row")
    types = {type(value) for value in values}
    if types <= {bool, int, float} and types:
        return _cleaned(np.array(values), name)
    if types != {str}:
        shown = ", ".join(sorted(kind.__name__ for kind in types)) or "no rows"
        raise InputError(f"{name}: expected labels of one type, text or numbers, got {shown}")
    return np.array(values, np.str_)


def _shown(part: np.ndarray) -> str:
    return repr(part[0].item()) if len(part) else "nothing"
