"""Counts of columns as arrays that can be added up, for secure sums: the server does not see any client's own counts.

The first sum has numbers of every column (``first_counts``): rows, missing values, numbers, sums, and how many clients
have text in it. It shows which columns have names to count. The second sum has these names, in a table that adds up
(``fedstein.data.name_sketch``). ``total_counts`` returns the same as ``column_counts.add_counts`` for plain counts,
except for two facts that only a single client's counts can show: the largest number of rows at one client, and whether
a client's values are all different. Fedstein uses both only to find identifiers among columns that the user has not
named, and the features of nodes are always named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedstein.data.column_counts import ColumnCounts
from fedstein.data.name_sketch import Counted, read_table, write_table
from fedstein.errors import FedsteinError, InputError

Counts = Mapping[str, ColumnCounts]
Arrays = dict[str, np.ndarray]
Shapes = dict[str, tuple[tuple[int, ...], str]]
SUMMED = ("rows", "missing", "numbers", "integers", "total", "categorical", "many")  # fields of ColumnCounts
CLIENTS = ("text", "only_numbers")  # how many clients have text in the column, or numbers and no text


def first_shapes(columns: int) -> Shapes:
    """The names, shapes and dtypes of ``first_counts``."""
    forms = {"every": len(SUMMED) + len(CLIENTS), "training": len(SUMMED)}
    return {name: ((columns, width), "float64") for name, width in forms.items()}


def first_counts(every: Counts, training: Counts) -> Arrays:
    """Collect a client's numbers of every column.

    Args:
        every: Its counts over all rows.
        training: Its counts over the rows to train on.

    Returns:
        ``every`` and ``training``, a row for each column.
    """
    own = [[each.texts > 0, each.numbers > 0 and not each.texts] for each in every.values()]
    return {
        "every": np.concatenate([_numbers(every), np.array(own, float).reshape(-1, len(CLIENTS))], axis=1),
        "training": _numbers(training),
    }


def columns_with_names(
    total: Mapping[str, np.ndarray], names: Sequence[str], known: Mapping[str, Sequence[str]], mode: bool
) -> list[int]:
    """Decide from the first sums which columns have names to count.

    Args:
        total: The sum of ``first_counts`` over clients.
        names: The columns.
        known: The result of ``encoding.known_categories``.
        mode: Whether the most frequent value of numbers is needed.

    Returns:
        The positions of these columns. A column with too many different values at some client is not among them.

    Raises:
        InputError: A column has text at some clients and numbers at others.
    """
    text, only_numbers = (total["every"][:, len(SUMMED) + place] for place in range(len(CLIENTS)))
    for place, name in enumerate(names):
        if text[place] > 0 and only_numbers[place] > 0 and name not in known:
            raise InputError(
                f"the nodes' files: column {name!r} has text at {text[place]:.0f} clients and numbers at "
                f"{only_numbers[place]:.0f}; make them alike, or name the column in data.categories if it holds "
                "categories"
            )
    categorical, many = (SUMMED.index(field) for field in ("categorical", "many"))
    counted = (text > 0) | (total["every"][:, categorical] > 0) | mode
    too_many = (total["every"][:, many] > 0) | (total["training"][:, many] > 0)
    return [place for place, name in enumerate(names) if (counted[place] or name in known) and not too_many[place]]


def name_table(
    every: Counts, training: Counts, places: Sequence[int], known: Mapping[str, Sequence[str]], salt: str
) -> np.ndarray:
    """Make a client's table of names.

    Args:
        every: Its counts over all rows.
        training: Its counts over the rows to train on, with the values of numbers if these are needed.
        places: The columns whose names are counted.
        known: The result of ``encoding.known_categories``. If it lists the categories of a column, only these names are
            written.
        salt: The salt of the sum.

    Returns:
        The table.

    Raises:
        InputError: A name does not fit.
    """
    columns, entries = list(every), []
    for place in places:
        column = columns[place]
        listed = known.get(column) or ()
        rows, kept = every[column].names or training[column].names, training[column].names
        entries += [
            Counted(place, name, count, kept.get(name, 0))
            for name, count in rows.items()
            if not listed or name in listed
        ]
    return write_table(entries, len(places), salt)


def total_counts(
    total: Mapping[str, np.ndarray], names: Sequence[str], table: np.ndarray | None, salt: str, *, fewer: bool = False
) -> tuple[dict[str, ColumnCounts], dict[str, ColumnCounts]]:
    """Compute the counts over all clients.

    Args:
        total: The sum of ``first_counts``.
        names: The columns.
        table: The sum of ``name_table``; None if no column has names.
        salt: The salt of the sum.
        fewer: Whether clients have dropped out between the two sums. The number of rows of a column with names is then
            taken from the second sum.

    Returns:
        The counts over all rows, and over the rows to train on.

    Raises:
        FedsteinError: The names cannot be read from the table.
    """
    found = [] if table is None else read_table(table, salt)
    if found is None or any(not 0 <= entry.column < len(names) for entry in found):
        raise FedsteinError(
            "the names of categories cannot be read from the secure sum: there are more than its table holds, or a "
            "client has sent something else; list them in data.categories"
        )
    rows: list[dict[str, int]] = [{} for _ in names]
    kept: list[dict[str, int]] = [{} for _ in names]
    for entry in found:
        rows[entry.column][entry.name] = entry.rows
        if entry.training:
            kept[entry.column][entry.name] = entry.training
    every, training = _counts(total["every"], names, rows), _counts(total["training"], names, kept)
    if fewer:
        every = {name: _of_names(each) if each.categorical or each.texts else each for name, each in every.items()}
    return every, training


def _of_names(counts: ColumnCounts) -> ColumnCounts:
    """Return the counts with the number of rows in which names were counted."""
    return counts._replace(rows=counts.missing + sum(counts.names.values()), numbers=0)


def _numbers(counts: Counts) -> np.ndarray:
    found = [[float(getattr(each, field)) for field in SUMMED] for each in counts.values()]
    return np.array(found, float).reshape(-1, len(SUMMED))


def _counts(total: np.ndarray, names: Sequence[str], of: Sequence[Mapping[str, int]]) -> dict[str, ColumnCounts]:
    counts = {}
    for place, name in enumerate(names):
        field = dict(zip(SUMMED, total[place].tolist(), strict=False))
        whole = {key: round(field[key]) for key in ("rows", "missing", "numbers", "integers")}
        flags = {key: field[key] > 0 for key in ("categorical", "many")}
        more = {"total": field["total"], "most": whole["rows"], "different": False, "names": of[place]}
        counts[name] = ColumnCounts(**whole, **flags, **more)
    return counts
