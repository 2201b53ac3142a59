"""A table: named columns of numbers or text, with the target and the client of each row. Error messages name the place.

``read_files.read_table`` makes a table from a file, and ``table_of`` from columns in memory, such as a DataFrame's.
What follows is the same for both:

    tables = [table_of("clinic a", columns_a, target="ill"), table_of("clinic b", columns_b, target="ill")]
    same_columns(tables)                                             # the features are the same, in any order
    counts = add_counts([count_columns(table) for table in tables])  # names, counts and sums; no rows
    encoding = choose_encoding(counts, missing="mean")               # fedstein.data.encoding
    x = [encoding.encode(table) for table in tables]                 # float64, columns encoding.feature_names
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedstein.data.cells import LARGEST, as_number, is_missing
from fedstein.errors import InputError

Column = Sequence[str] | np.ndarray  # text as in the file, or numbers with NaN for a missing value


@dataclass(frozen=True)
class Table:
    """The content of one file or one DataFrame. Features are converted to numbers only when they are asked for.

    Attributes:
        name: What messages call it: the name of the file.
        features: The feature columns by name, in the order of the file.
        target_name: The name of the target column; empty if there is none.
        targets: The target of each row as text.
        clients: The client of each row, if a column names it.
        rows: The number of rows.
        lines: The line that each row ends on (CSV).
        named: False for an NPZ file without feature_names, whose columns are identified by position.
        categorical: Features whose type says that they are categories, whatever their values look like.
        dropped: The columns of the file that were left out.
    """

    name: str
    features: Mapping[str, Column]
    target_name: str
    targets: Sequence[str]
    clients: Sequence[str] | None
    rows: int
    lines: Sequence[int] | None = None
    named: bool = True
    categorical: frozenset[str] = field(default_factory=frozenset)
    dropped: frozenset[str] = field(default_factory=frozenset)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the feature columns."""
        return tuple(self.features)

    @property
    def x(self) -> np.ndarray:
        """All features as numbers, rows x features."""
        return self.columns(self.feature_names)

    def column(self, name: str, names: Sequence[str] = ()) -> Column:
        """Return one feature column.

        Args:
            name: Its name.
            names: All columns that are expected, in order. A table without names is read by position among them.

        Raises:
            InputError: There is no such column.
        """
        if not self.named and names:
            if len(names) != len(self.features):
                raise InputError(
                    f"{self.name}: expected {len(names)} columns in x ({listed(names)}), "
                    f"got {len(self.features)}; give it those columns, or name its columns in an array feature_names"
                )
            if set(names) != set(self.features):
                return list(self.features.values())[list(names).index(name)]
        if name not in self.features:
            missing = [each for each in names or (name,) if each not in self.features]
            raise InputError(
                f"{self.name}: expected the columns {listed(missing)}, which are missing; add them to the file"
            )
        return self.features[name]

    def columns(self, names: tuple[str, ...]) -> np.ndarray:
        """Return the named columns as numbers.

        Args:
            names: The names of feature columns.

        Returns:
            Rows x names, float64.

        Raises:
            InputError: If a column is missing, or a value is not a finite number.
        """
        out = np.empty((self.rows, len(names)))
        for i, name in enumerate(names):
            out[:, i] = numbers(self.column(name, names), self, name)
        return out

    def place(self, row: int) -> str:
        """Describe the position of a row in the file, for messages."""
        return f"line {self.lines[row]}" if self.lines is not None else f"row {row}"


def table_of(
    name: str,
    columns: Mapping[str, Column],
    *,
    target: str | None = None,
    client: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    lines: Sequence[int] | None = None,
    categorical: frozenset[str] = frozenset(),
) -> Table:
    """Build a table whose features, target and client are columns.

    Args:
        name: What messages call it.
        columns: All columns by name, of equal length.
        target: The target column. None selects the last column; "" means that there is no target.
        client: The column with the client of each row, if there is one.
        features: The only features that are used. Other columns may then have any content.
        drop: Columns that are not used.
        lines: The line of each row, for messages.
        categorical: Columns whose type says that they are categories.

    Returns:
        The table.

    Raises:
        InputError: A column is missing, a client has no name, or there are no rows or features.
    """
    header = list(columns)
    target, names = choose_columns(name, header, target, client, features, drop)
    rows = len(columns[header[0]]) if header else 0
    if not rows:
        raise InputError(f"{name}: expected rows and feature columns, got 0 rows and {len(names)} features")
    table = Table(
        name=name,
        features={feature: columns[feature] for feature in names},
        target_name=target,
        targets=texts(columns[target]) if target else (),
        clients=texts(columns[client]) if client else None,
        rows=rows,
        lines=lines,
        categorical=categorical & set(names),
        dropped=frozenset(drop) & set(header),
    )
    refuse_blanks(table, columns, [target] * bool(target) + [client or ""] * bool(client))
    refuse_nameless_clients(table, client or "")
    return table


def choose_columns(
    name: str,
    header: Sequence[str],
    target: str | None,
    client: str | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
) -> tuple[str, tuple[str, ...]]:
    """Decide which column is the target and which are features.

    Args:
        name: What messages call the file.
        header: The names of all columns.
        target: As for ``table_of``.
        client: As for ``table_of``.
        features: As for ``table_of``.
        drop: As for ``table_of``.

    Returns:
        The target, and the features in the order of the file. Features that the file lacks are left out.

    Raises:
        InputError: A column is missing or has two roles, or no feature is left.
    """
    reserved = {client, *drop, *(features or ())}
    if target is None:
        left = [each for each in header if each not in reserved]
        if len(left) > 1 and header[-1] in (features or ()):
            raise InputError(
                f"{name}: data.features names {header[-1]!r}, the last column, which is the target unless data.target "
                f"names another; set data.target, for example to {left[-1]!r}"
            )
        target = next((each for each in reversed(header) if each not in reserved), header[-1] if header else "")
    for key, wanted in (("target", target), ("client", client)):
        if wanted and wanted not in header:
            raise InputError(
                f"{name}: expected a column {wanted!r} (data.{key}), got columns {listed(header)}; correct the name"
            )
    if target and target == client:
        raise InputError(f"{name}: expected different columns for data.target and data.client, got {target!r} twice")
    for key, chosen in (("features", features or ()), ("drop", drop)):
        both = [each for each in chosen if each and each in (target, client)]
        if both:
            role = "target" if both[0] == target else "client"
            raise InputError(f"{name}: {both[0]!r} is in data.{key} and is data.{role} too; remove it from one of them")
    if twice := [each for each in drop if each in (features or ())]:
        raise InputError(f"{name}: {twice[0]!r} is in data.features and in data.drop; remove it from one of them")
    names = tuple(each for each in header if each not in (target, client, *drop))
    if not names:
        raise InputError(f"{name}: expected rows and feature columns, got 0 features besides target and client")
    if features is not None:
        asked = set(features)
        names = tuple(each for each in names if each in asked)
    return target, names


def same_columns(tables: Sequence[Table]) -> tuple[str, ...]:
    """Check that all tables have the same features, in any order.

    Args:
        tables: One table for each file or client.

    Returns:
        The features in the order of the first table.

    Raises:
        InputError: A table lacks a column that another one has, or only some of the tables name their columns.
    """
    first = tables[0]
    for table in tables[1:]:
        if table.named != first.named:
            unnamed, other = (table, first) if first.named else (first, table)
            raise InputError(
                f"{unnamed.name}: expected an array feature_names, as {other.name} has names for its columns; add it"
            )
        for one, two in ((table, first), (first, table)):
            if lacking := [each for each in two.features if each not in one.features]:
                raise InputError(
                    f"{one.name}: expected a column {lacking[0]!r}, which {two.name} has, got columns "
                    f"{listed(one.feature_names)}; add it, or leave it out everywhere with data.drop"
                )
    return first.feature_names


def numbers(values: Column, table: Table, column: str) -> np.ndarray:
    """Convert one column to float64.

    Args:
        values: The values of the column.
        table: The table, for the message.
        column: The name of the column, for the message.

    Raises:
        InputError: If a value is not a finite number. The message names the column and the line.
    """
    out = read_numbers(values)
    refuse_odd_numbers(values, ~(np.abs(out) <= LARGEST), table, column)
    return out


def read_numbers(values: Column) -> np.ndarray:
    """Read the numbers of a column as float64, with NaN for a cell without a number."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    try:
        found = np.array(values, np.float64)
    except ValueError:
        found = None
    if found is None or any("_" in str(value) for value in values):  # NumPy reads 1_000 as Python does
        return np.array([as_number(str(value)) for value in values])
    return found


def refuse_odd_numbers(values: Column, bad: np.ndarray, table: Table, column: str) -> None:
    """Refuse the first cell that is marked as bad.

    Raises:
        InputError: There is such a cell. The message names the column and the line.
    """
    rows = np.flatnonzero(bad)
    if len(rows):
        value = str(values[rows[0]]).strip()
        got = f"{value!r}" if value else "nothing"
        raise InputError(
            f"{table.name}: expected a finite number in column {column!r}, "
            f"got {got} on {table.place(int(rows[0]))}; remove the row, fill in a number, "
            "or name the column in data.categories if it holds categories"
        )


def listed(names: Sequence[str]) -> str:
    """Join names for a message, at most ten of them."""
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def texts(values: Column) -> list[str]:
    """Return a column as text without blanks around it."""
    return [str(value).strip() for value in (values.tolist() if isinstance(values, np.ndarray) else values)]


def refuse_blanks(table: Table, columns: Mapping[str, Column], names: Sequence[str]) -> None:
    """Refuse values that differ only in blanks around them, because they may or may not mean the same.

    Args:
        table: The table, for the message.
        columns: The columns.
        names: The columns to look at.

    Raises:
        InputError: A column has such values, for example "x" and "x ".
    """
    for name in names:
        values = columns[name]
        if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
            continue
        seen: dict[str, str] = {}
        for row, value in enumerate(values):
            text = str(value)
            if seen.setdefault(text.strip(), text) != text and not is_missing(text):
                raise InputError(
                    f"{table.name}: expected one spelling in column {name!r}, got {seen[text.strip()]!r} and {text!r} "
                    f"({table.place(row)}), which differ only in blanks; remove the blanks"
                )


def refuse_nameless_clients(table: Table, column: str) -> None:
    """Refuse a client that has no name.

    Raises:
        InputError: A row has no client. The message names the line.
    """
    for row, value in enumerate(table.clients or ()):
        if is_missing(value) or value == "None":  # Python's None as text
            got = f"{value!r}" if value else "nothing"
            raise InputError(
                f"{table.name}: expected a client in column {column!r}, got {got} on {table.place(row)}; "
                "fill in the name or remove the row"
            )
