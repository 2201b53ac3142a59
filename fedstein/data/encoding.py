"""The coding of columns of numbers and categories as the numeric columns of a model, the same for every client.

A category column becomes one 0/1 column for each name of its list, called ``column=name``. A missing value is refused
unless a fill is known: the mean of the training rows for a number, or the most frequent value. ``choose_encoding``
decides from the clients' counts and sums alone (``fedstein.data.column_counts``). ``Encoding.encode`` then codes the
rows of every client, test rows and rows that are predicted later in the same way. ``fedstein.data.table`` has an
example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedstein.data.cells import LARGEST, normalised_label
from fedstein.data.column_counts import MOST_CATEGORIES, ColumnCounts, category_names, read_cells
from fedstein.data.labels import codes
from fedstein.data.spellings import refuse_cases
from fedstein.data.table import Column, Table, listed, refuse_odd_numbers
from fedstein.errors import InputError

LEAST_ROWS = 20  # with fewer rows, all values of a column may be different by chance
MISSING = ("mean", "mode", "indicator")
CODINGS = ("one-hot", "reference")


class Coding(NamedTuple):
    """How one column is coded.

    Attributes:
        name: The name of the column.
        categories: The names of its categories in order; None for a column of numbers.
        fill: The value that replaces a missing value: a number, or the name of a category. If it is None, missing
            values are refused, unless there is an indicator for them.
        indicator: Whether a further 0/1 column says in which rows the value is missing.
        reference: Whether the first category has no column of its own, so that the others are compared with it.
    """

    name: str
    categories: tuple[str, ...] | None = None
    fill: float | str | None = None
    indicator: bool = False
    reference: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the numeric columns that the column becomes."""
        extra = (f"{self.name} missing",) if self.indicator else ()
        if self.categories is None:
            return (self.name, *extra)
        return (*(f"{self.name}={each}" for each in self.categories[self.reference :]), *extra)


class Encoding(NamedTuple):
    """How the columns of a table are coded, in the order of the features."""

    columns: tuple[Coding, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that a file must have."""
        return tuple(coding.name for coding in self.columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the numeric columns that a model takes."""
        return tuple(name for coding in self.columns for name in coding.feature_names)

    @property
    def categories(self) -> dict[str, list[str]]:
        """The categories of each column that has some, as ``data.categories`` takes them."""
        return {coding.name: list(coding.categories) for coding in self.columns if coding.categories is not None}

    @property
    def fills(self) -> dict[str, float | str]:
        """The value that replaces a missing one in each column, in the form of ``data.fill``."""
        return {
            coding.name: "" if coding.fill is None else coding.fill
            for coding in self.columns
            if coding.fill is not None or coding.indicator
        }

    @property
    def binary_fills(self) -> np.ndarray:
        """For each feature the number between 0 and 1 that replaces missing values; NaN if there is none.

        A column of 0, 1 and this number is a 0/1 column with gaps, which is not standardised.
        """
        fills = {
            coding.name: float(coding.fill)
            for coding in self.columns
            if coding.categories is None and coding.fill is not None and 0 < float(coding.fill) < 1
        }
        return np.array([fills.get(name, np.nan) for name in self.feature_names])

    def encode(self, table: Table) -> np.ndarray:
        """Code the rows of a table. Columns are found by name, in any order.

        Args:
            table: The rows, with these columns and perhaps others.

        Returns:
            Rows x features, float64, neither scaled nor shuffled.

        Raises:
            InputError: A column is missing, a number is not finite, a category is unknown, or a value is missing that
                nothing can replace. The message names the file, the column and the line.
        """
        parts = [_encoded(table, coding, table.column(coding.name, self.names)) for coding in self.columns]
        return np.concatenate(parts, axis=1)

    def to_json(self) -> list[dict[str, Any]]:
        """Return what ``data.json`` of a run folder holds."""
        return [
            {**coding._asdict(), "categories": None if coding.categories is None else list(coding.categories)}
            for coding in self.columns
        ]

    @classmethod
    def from_json(cls, columns: Sequence[Mapping[str, Any]]) -> Encoding:
        """Read what ``to_json`` has written."""
        return cls(
            tuple(
                Coding(**{**each, "categories": None if each["categories"] is None else tuple(each["categories"])})
                for each in columns
            )
        )


def plain_encoding(names: Sequence[str]) -> Encoding:
    """Return the encoding that takes every column as numbers and refuses missing values."""
    return Encoding(tuple(Coding(name) for name in names))


def known_encoding(
    names: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    coding: str | None,
    missing: str | None,
    fill: Mapping[str, float | str] | None,
) -> Encoding:
    """Return the encoding of columns about which everything is known already.

    Args:
        names: The columns.
        categories: The categories of each column that has some.
        coding: "one-hot" or "reference".
        missing: What to do with missing values.
        fill: What ``Encoding.fills`` returned.
    """

    def of(name: str) -> Coding:
        known = tuple(categories[name]) if name in categories else None
        shown = missing == "indicator" and name in (fill or {})
        value = (fill or {}).get(name)
        if known is not None:
            value = None if value in (None, "") else str(value)
        return Coding(name, known, value, shown, coding == "reference" and known is not None)

    return Encoding(tuple(of(name) for name in names))


def known_categories(given: Mapping[str, Sequence[Any]] | Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Normalise ``data.categories``.

    Args:
        given: The names of each column's categories, or only the names of columns whose categories are to be found.

    Returns:
        The categories of each column; an empty tuple if they are to be found.

    Raises:
        InputError: A column has the same category twice.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return {str(name): () for name in given}
    found = {str(name): tuple(normalised_label(str(each)) for each in names) for name, names in given.items()}
    for name, names in found.items():
        if twice := sorted({each for each in names if names.count(each) > 1}):
            raise InputError(
                f"data.categories: expected different names for column {name!r}, got {listed(twice)} twice"
            )
        if len(names) == 1:
            raise InputError(
                f"data.categories: expected at least two categories for column {name!r}, got {names[0]!r} alone; add "
                "the others, or leave the column out with data.drop"
            )
    return found


def choose_encoding(
    counts: Mapping[str, ColumnCounts],
    *,
    training: Mapping[str, ColumnCounts] | None = None,
    named: Sequence[str] = (),
    categories: Mapping[str, Sequence[str]] | None = None,
    missing: str | None = None,
    coding: str | None = None,
    where: str = "",
) -> Encoding:
    """Decide how every column is coded, from counts and sums over the clients.

    Args:
        counts: The counts of all rows, added over the clients.
        training: The counts of the training rows, from which missing values are filled; by default ``counts``.
        named: Columns that the user has named as features. They may look like row numbers or identifiers.
        categories: What ``known_categories`` returned.
        missing: None refuses missing values. "mean": numbers become the mean, categories the most frequent one. "mode":
            both become the most frequent value. "indicator": like "mean", with a further 0/1 column that is 1 in rows
            without a value; a missing category has 0 in all other columns.
        coding: "one-hot" (a column for each category) or "reference" (the first category has none).
        where: What messages call the rows.

    Returns:
        The encoding. Its columns are in the order of ``counts``.

    Raises:
        InputError: A column is an identifier, free text, or something else that cannot be coded; or values are missing.
            The message names the column and says what to do.
    """
    known = categories or {}
    if unknown := [name for name in known if name not in counts]:
        raise InputError(
            f"data.categories: expected names of feature columns, got {unknown[0]!r}; the features are "
            f"{listed(list(counts))}"
        )
    for key, value, choices in (("missing", missing, MISSING), ("coding", coding, CODINGS)):
        if value is not None and value not in choices:
            raise InputError(f"expected data.{key} to be one of {', '.join(choices)}, got {value!r}")
    refuse_identifiers(counts, named, known, where)
    fills = training or counts
    try:
        return Encoding(
            tuple(
                _chosen(name, each, fills[name], known.get(name), missing, coding == "reference")
                for name, each in counts.items()
            )
        )
    except InputError as error:
        raise InputError(f"{where}: {error}" if where else str(error)) from None


def _chosen(
    name: str,
    counts: ColumnCounts,
    training: ColumnCounts,
    known: Sequence[str] | None,
    missing: str | None,
    reference: bool,
) -> Coding:
    present = counts.rows - counts.missing
    if not present:
        raise InputError(f'column {name!r} has no value in any row; leave it out with data.drop = ["{name}"]')
    if counts.missing and missing is None:
        raise InputError(
            f"column {name!r} has {counts.missing} missing value{'s' * (counts.missing > 1)} in {counts.rows} rows; "
            'fill them in, set data.missing = "mean", "mode" or "indicator", or leave the column out with data.drop'
        )
    if known is None and not counts.categorical and not counts.texts:
        return Coding(name, None, _number_fill(name, counts, training, missing), _shown(counts, missing))
    if not known:
        if counts.many or (known is None and len(counts.names) > MOST_CATEGORIES):
            raise InputError(
                f"column {name!r} has text with more than {MOST_CATEGORIES} different values, too many for categories; "
                f'leave it out with data.drop = ["{name}"], or list its values in data.categories'
            )
        if sum(counts.names.values()) != present:
            raise InputError(
                f"column {name!r} has categories in some files and numbers in others; make them alike, or name the "
                "column in data.categories"
            )
        refuse_cases(counts.names, f"column {name!r}", f"list its values in data.categories, {name} = [...]")
        known = codes(list(counts.names))[0]
        if len(known) < 2:
            raise InputError(
                f"column {name!r} has only one category ({known[0]!r}), which predicts nothing; leave it out with "
                f'data.drop = ["{name}"]'
            )
    fill = _mode(training.names) if missing in ("mean", "mode") else None
    return Coding(name, tuple(known), fill, _shown(counts, missing), reference)


def refuse_identifiers(
    counts: Mapping[str, ColumnCounts], named: Sequence[str], categories: Mapping[str, Sequence[str]], where: str
) -> None:
    """Refuse features that are different in every row, like row numbers.

    Args:
        counts: The counts of all rows, added over the clients.
        named: Columns that the user has named as features. They are not checked.
        categories: Columns that the user has named as categories.
        where: What messages call the rows.

    Raises:
        InputError: An integer or text column has no value twice at any client.
    """
    for name, each in counts.items():
        present = each.rows - each.missing
        whole = each.texts > 0 or each.integers == present
        if present and each.different and whole and each.most >= LEAST_ROWS and name not in (*named, *categories):
            what = "text" if each.texts else "an integer"
            raise InputError(
                f"{where}{': ' * bool(where)}column {name!r} has {what} that is different in every row, like a row "
                f'number or an identifier, which predicts nothing; leave it out with data.drop = ["{name}"], or name '
                "the features in data.features"
            )


def _shown(counts: ColumnCounts, missing: str | None) -> bool:
    return missing == "indicator" and counts.missing > 0


def _number_fill(name: str, counts: ColumnCounts, training: ColumnCounts, missing: str | None) -> float | None:
    if missing is None or (missing == "indicator" and not counts.missing):
        return None
    if missing == "mode":
        if training.many or len(training.names) > MOST_CATEGORIES:
            if not counts.missing:
                return None
            raise InputError(
                f"column {name!r} has more than {MOST_CATEGORIES} different numbers, of which none is typical; set "
                'data.missing = "mean" or "indicator"'
            )
        found = _mode(training.names)
        return None if found is None else float(found)
    if not training.numbers:
        raise InputError(f"column {name!r} has no value in any training row; leave it out with data.drop")
    return training.total / training.numbers


def _mode(names: Mapping[str, int]) -> str | None:
    """Return the name with the highest count; if several have it, the first in sorted order."""
    ordered = codes(list(names))[0] if names else ()
    return max(ordered, key=lambda each: names[each], default=None)


def _encoded(table: Table, coding: Coding, column: Column) -> np.ndarray:
    if coding.categories is None:
        return _encoded_numbers(table, coding, column)
    found = category_names(column, coding.categories)
    index = {normalised_label(each): code for code, each in enumerate(coding.categories)}
    out = np.zeros((table.rows, len(index) + 1))
    for row, each in enumerate(found):
        if not each:
            if coding.fill is None and not coding.indicator:
                _refuse_missing(table, coding.name, row)
            each = each if coding.indicator else str(coding.fill)
        elif each not in index:
            raise InputError(
                f"{table.name}: expected one of the categories ({listed(coding.categories)}) in column "
                f"{coding.name!r}, got {each!r} on {table.place(row)}; correct the value, or add it to data.categories "
                "and train again"
            )
        out[row, index.get(each, len(index))] = 1.0
    return out[:, int(coding.reference) : len(index) + coding.indicator]


def _encoded_numbers(table: Table, coding: Coding, column: Column) -> np.ndarray:
    cells = read_cells(column)
    bad = ~cells.missing & ~(np.abs(cells.numbers) <= LARGEST)
    refuse_odd_numbers(column, bad, table, coding.name)
    out = cells.numbers
    if cells.missing.any():
        if coding.fill is None:
            _refuse_missing(table, coding.name, int(np.flatnonzero(cells.missing)[0]))
        out = np.where(cells.missing, float(coding.fill or 0.0), out)
    return np.stack([out, cells.missing.astype(np.float64)], axis=1) if coding.indicator else out[:, None]


def _refuse_missing(table: Table, column: str, row: int) -> None:
    raise InputError(
        f"{table.name}: expected a value in column {column!r}, got nothing on {table.place(row)}, and nothing is known "
        "to fill it with; fill it in or remove the row"
    )
