"""Checks that refuse ambiguous names: two spellings of one name, or two codings of one column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedstein.data.cells import is_comma_number
from fedstein.data.table import listed
from fedstein.errors import InputError


def refuse_cases(names: Iterable[str], what: str, remedy: str) -> None:
    """Refuse names that differ only in capital letters.

    Args:
        names: The names.
        what: What the names belong to, for the message.
        remedy: What to do if the difference is intended, for the message.

    Raises:
        InputError: Two names differ only in capital letters, such as "Yes" and "yes".
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise InputError(
                f"{what} has {other!r} and {name!r}, which differ only in capital letters; make them alike, or {remedy}"
            )


def refuse_foreign_labels(labels: Mapping[str, Sequence[str]], column: str) -> None:
    """Refuse a file with several labels if no other file has any of them: it probably codes its labels differently.

    Args:
        labels: The labels of every file, by its name.
        column: The target column.

    Raises:
        InputError: There is such a file. For example, it has "yes" and "no", and the others have 0 and 1.
    """
    for file, own in labels.items():
        others = sorted({each for other, found in labels.items() if other != file for each in found})
        if others and len(set(own)) > 1 and not set(own) & set(others):
            raise InputError(
                f"{file}: column {column!r} has the labels {listed(sorted(set(own)))}, of which no other file has any "
                f"(they have {listed(others)}); code them alike, or list all of them in data.labels if they are "
                "different labels"
            )


def refuse_comma_numbers(name: str, column: str, texts: Sequence[str], places: Sequence[str]) -> None:
    """Refuse a column whose values are all numbers with a decimal comma, because they would become categories.

    Args:
        name: What messages call the file.
        column: The column.
        texts: Its values that are text.
        places: The positions of these values.

    Raises:
        InputError: All values look like "3,5".
    """
    if texts and all(is_comma_number(text) for text in texts):
        raise InputError(
            f"{name}: expected numbers with a decimal point in column {column!r}, got {texts[0]!r} on {places[0]}; "
            "save the file with decimal points, or name the column in data.categories if it holds categories"
        )


def refuse_constants(columns: Mapping[str, np.ndarray], least_rows: int, where: str) -> None:
    """Refuse columns of numbers that have the same value in every row.

    Args:
        columns: The values of each column.
        least_rows: The check needs at least this many rows.
        where: What messages call the rows.

    Raises:
        InputError: There are such columns; the message names all of them.
    """
    same = [name for name, values in columns.items() if len(values) >= least_rows and np.ptp(values) == 0]
    if same:
        quoted = ", ".join(f'"{name}"' for name in same)
        raise InputError(
            f"{where}: column{'s' * (len(same) > 1)} {listed(same)} {'have' if len(same) > 1 else 'has'} the same "
            f"value in every row, which predicts nothing; leave {'them' if len(same) > 1 else 'it'} out with "
            f"data.drop = [{quoted}], or name the features in data.features"
        )
