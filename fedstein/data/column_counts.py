"""Summaries of clients' columns from which the coding of the columns is decided: names, counts and sums, no rows.

Every client counts its own columns (``count_columns``), and the server adds the counts (``add_counts``). The names of
categories are sent with the number of rows that have them. A text column with more than ``MOST_CATEGORIES`` different
values is not a category, and its values are not sent. For a numeric column only counts and the sum are sent, unless
its most frequent value is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedstein.data.cells import LARGEST, is_date, is_missing, normalised_label
from fedstein.data.spellings import refuse_comma_numbers
from fedstein.data.table import Column, Table, listed, read_numbers, refuse_blanks, refuse_odd_numbers, texts
from fedstein.errors import InputError

MOST_CATEGORIES = 50  # a text column with more different values is free text
TRUTH = {"true": 1.0, "false": 0.0}


class ColumnCounts(NamedTuple):
    """The counts of one column, of one client or summed over several.

    Attributes:
        rows: The number of rows.
        missing: The number of cells without a value.
        numbers: The number of cells with a number, "true" and "false" included.
        integers: The number of cells with an integer.
        total: The sum of the numbers.
        most: The largest number of rows at one client.
        different: Whether the values of every client are all different. Cells without a value do not count.
        categorical: Whether the type of the column says that its values are categories.
        many: Whether there are too many different values to count each.
        names: The number of rows with each value, for categories; for numbers only if it was asked for.
    """

    rows: int
    missing: int
    numbers: int
    integers: int
    total: float
    most: int
    different: bool
    categorical: bool
    many: bool
    names: Mapping[str, int]

    @property
    def texts(self) -> int:
        """The number of cells with text."""
        return self.rows - self.missing - self.numbers


def count_columns(
    table: Table,
    features: Sequence[str] = (),
    *,
    categories: Mapping[str, Sequence[str]] | None = None,
    rows: np.ndarray | None = None,
    values: bool = False,
) -> dict[str, ColumnCounts]:
    """Count the columns of one client.

    Args:
        table: The client's rows.
        features: The columns to count; by default all features.
        categories: Columns that are categories whatever they hold, with the names that are known. Such a name is never
            a missing value.
        rows: The numbers of the rows to count; by default all rows.
        values: Whether the values of numeric columns are counted too, which their mode needs.

    Returns:
        The counts of each column.

    Raises:
        InputError: A column is missing, holds dates, or has numbers and text mixed. The message names the line.
    """
    names = tuple(features) or table.feature_names
    known = categories or {}
    return {name: _count(table, name, table.column(name, names), known.get(name), rows, values) for name in names}


def add_counts(parts: Sequence[Mapping[str, ColumnCounts]]) -> dict[str, ColumnCounts]:
    """Add the counts of several clients, column by column.

    Args:
        parts: What ``count_columns`` returned for each client, over the same columns.

    Returns:
        The counts over all clients.
    """
    return {name: _add([part[name] for part in parts]) for name in parts[0]}


def refuse_mixtures(counts: Mapping[str, Mapping[str, ColumnCounts]], known: Collection[str], where: str) -> None:
    """Refuse a column that is text at some clients and numbers at others.

    Args:
        counts: The counts over all rows of each client, by its name.
        known: The columns that the user names as categories, which may look like numbers.
        where: What messages call the rows.

    Raises:
        InputError: There is such a column.
    """
    for column in next(iter(counts.values())):
        with_text = [name for name, each in counts.items() if each[column].texts]
        others = [name for name, each in counts.items() if each[column].numbers and not each[column].texts]
        if with_text and others and column not in known:
            raise InputError(
                f"{where}: column {column!r} has text in {listed(with_text)} and numbers in {listed(others)}; make "
                "them alike, or name the column in data.categories if it holds categories"
            )


def refuse_missing(table: Table, counts: Mapping[str, ColumnCounts], known: Mapping[str, Sequence[str]]) -> None:
    """Refuse missing values, with the file, the column and the line.

    Args:
        table: The client's rows.
        counts: What ``count_columns`` returned for them.
        known: Columns that are categories, with the names that are known.

    Raises:
        InputError: A value is missing.
    """
    for name, each in counts.items():
        if each.missing:
            first = category_names(table.column(name, tuple(counts)), known.get(name, ())).index("")
            found = str(table.column(name, tuple(counts))[first]).strip()
            others = f" and in {each.missing - 1} other rows" if each.missing > 1 else ""
            raise InputError(
                f"{table.name}: expected a value in column {name!r}, got {repr(found) if found else 'nothing'} on "
                f'{table.place(first)}{others}; fill it in, set data.missing to "mean", "mode" or "indicator", or '
                f'leave the column out with data.drop = ["{name}"]'
            )


class Cells(NamedTuple):
    """One column, cell by cell."""

    missing: np.ndarray  # bool
    numbers: np.ndarray  # float64; NaN if a cell holds no number
    texts: Sequence[str] | None  # None if every cell that is not missing is a number


def read_cells(values: Column, known: Sequence[str] = ()) -> Cells:
    """Read a column cell by cell.

    Args:
        values: The column.
        known: Names of categories, which are never missing values.
    """
    found = read_numbers(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return Cells(np.isnan(found), found, None)
    gaps = np.isnan(found)
    if not gaps.any():
        return Cells(gaps, found, None)
    words = texts(values)
    missing = np.array(
        [gap and is_missing(word) and word not in known for gap, word in zip(gaps, words, strict=True)], bool
    )
    words_only = [words[row].lower() for row in np.flatnonzero(gaps & ~missing)]
    if words_only and len(words_only) + missing.sum() < len(words) and set(words_only) == {"none"}:
        missing |= gaps  # among numbers, "None" is a missing value and not a name
    present = np.flatnonzero(~missing)
    if all(words[row].lower() in TRUTH for row in present):
        found[present] = [TRUTH[words[row].lower()] for row in present]
    return Cells(missing, found, words if (np.isnan(found) & ~missing).any() else None)


def category_names(values: Column, known: Sequence[str] = ()) -> list[str]:
    """Return the normalised category of every row; "" if it is missing."""
    return [normalised_label(text) if text in known or not is_missing(text) else "" for text in texts(values)]


def _count(
    table: Table,
    name: str,
    column: Column,
    known: Sequence[str] | None,
    rows: np.ndarray | None,
    values: bool,
) -> ColumnCounts:
    cells = read_cells(column, known or ())
    categorical = known is not None or name in table.categorical
    if categorical or cells.texts is not None:
        refuse_blanks(table, {name: column}, [name])
    if not categorical:
        _refuse_dates_and_mixtures(table, name, cells)
        infinite = ~np.isnan(cells.numbers) & ~(np.abs(cells.numbers) <= LARGEST)
        refuse_odd_numbers(column, infinite, table, name)
    pick = slice(None) if rows is None else rows
    missing, found = cells.missing[pick], cells.numbers[pick]
    present = found[~np.isnan(found)]
    if categorical or cells.texts is not None:
        every = [each for each in np.array(category_names(column, known or ()), object)[pick].tolist() if each]
        counted: Counter[str] = Counter(every)
        different = len(counted) == len(every)
    else:
        distinct, sizes = np.unique(present, return_counts=True)
        different = len(distinct) == len(present)
        counted = Counter(dict(zip(map(repr, distinct.tolist()), sizes.tolist(), strict=True)) if values else {})
    many = len(counted) > MOST_CATEGORIES and known is None
    return ColumnCounts(
        rows=len(missing),
        missing=int(missing.sum()),
        numbers=len(present),
        integers=int((present == np.floor(present)).sum()),
        total=float(present.sum()),
        most=len(missing),
        different=different,
        categorical=categorical,
        many=many,
        names={} if many else dict(counted),
    )


def _refuse_dates_and_mixtures(table: Table, name: str, cells: Cells) -> None:
    if cells.texts is None:
        return
    rows = np.flatnonzero(np.isnan(cells.numbers) & ~cells.missing)
    for row in rows.tolist():
        if is_date(cells.texts[row]):
            raise InputError(
                f"{table.name}: expected numbers or categories in column {name!r}, got a date "
                f"({cells.texts[row]!r} on {table.place(row)}); turn it into a number such as days or age, or leave "
                f'the column out with data.drop = ["{name}"]'
            )
    places = rows.tolist()
    refuse_comma_numbers(
        table.name, name, [cells.texts[row] for row in places], [table.place(row) for row in places[:1]]
    )
    if len(rows) + cells.missing.sum() < len(cells.numbers):
        row = int(rows[0])
        raise InputError(
            f"{table.name}: expected a number in column {name!r}, got {cells.texts[row]!r} on {table.place(row)}, and "
            "numbers in other rows; correct the value, or name the column in data.categories if it holds categories"
        )


def _add(parts: Sequence[ColumnCounts]) -> ColumnCounts:
    counted: Counter[str] = Counter()
    for part in parts:
        counted.update(part.names)
    return ColumnCounts(
        rows=sum(part.rows for part in parts),
        missing=sum(part.missing for part in parts),
        numbers=sum(part.numbers for part in parts),
        integers=sum(part.integers for part in parts),
        total=float(sum(part.total for part in parts)),
        most=max(part.most for part in parts),
        different=all(part.different for part in parts),
        categorical=any(part.categorical for part in parts),
        many=any(part.many for part in parts),
        names=dict(counted),
    )
