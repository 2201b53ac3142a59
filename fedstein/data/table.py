"""Reading a CSV, Parquet or NPZ file as columns. Error messages name the file, the column and the line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedstein.data.dataset import LARGEST
from fedstein.data.npz import read_npz
from fedstein.data.parquet import parquet_columns, parquet_header
from fedstein.errors import InputError

Column = Sequence[str] | np.ndarray  # text as in the file, or numbers


@dataclass(frozen=True)
class Table:
    """The content of one file. Features are converted to numbers only when `columns` asks for them."""

    path: Path
    feature_names: tuple[str, ...]
    features: tuple[Column, ...]
    target_name: str
    targets: Sequence[str]
    clients: Sequence[str] | None
    lines: Sequence[int] | None  # the line each row ends on (CSV)
    rows: int
    named: bool = True  # False: an NPZ file without feature_names, whose columns are identified by position

    @property
    def x(self) -> np.ndarray:
        """All features as numbers, rows x features."""
        return self.columns(self.feature_names)

    def columns(self, names: tuple[str, ...]) -> np.ndarray:
        """Return the named columns as numbers.

        Args:
            names: The names of feature columns.

        Returns:
            Rows x names, float64.

        Raises:
            InputError: If a column is missing, or a value is not a finite number.
        """
        if not self.named and len(names) != len(self.feature_names):
            raise InputError(
                f"{self.path.name}: expected {len(names)} columns in x ({listed(names)}), "
                f"got {len(self.feature_names)}; give it those columns, or name its columns in an array feature_names"
            )
        position = {name: i for i, name in enumerate(self.feature_names if self.named else names)}
        missing = [name for name in names if name not in position]
        if missing:
            raise InputError(
                f"{self.path.name}: expected columns that are missing: {listed(missing)}; add them to the file"
            )
        out = np.empty((self.rows, len(names)))
        for i, name in enumerate(names):
            out[:, i] = numbers(self.features[position[name]], self, name)
        return out

    def place(self, row: int) -> str:
        """Describe the position of a row in the file, for messages."""
        return f"line {self.lines[row]}" if self.lines is not None else f"row {row}"


def read_table(
    path: str | Path,
    *,
    target: str | None = None,
    client: str | None = None,
    features: Sequence[str] | None = None,
    folder: bool = True,
) -> Table:
    """Read a file.

    Args:
        path: A CSV, Parquet or NPZ file.
        target: The target column. None selects the last column (y in an NPZ file); "" means that there is no target.
        client: The column with the client of each row, if there is one.
        features: The only features that will be used. Other columns may then have any content.
        folder: Whether messages may name the folder. It is False for messages that leave the machine.

    Returns:
        The table.

    Raises:
        InputError: If the file cannot be read or lacks a column.
    """
    path = Path(path).expanduser()
    shown = path if folder else path.name
    try:
        if not path.is_file():
            got = "a folder" if path.is_dir() else "no such file"
            raise InputError(f"expected a CSV, Parquet or NPZ file at {shown}, got {got}")
        reader = READERS.get(path.suffix.lower())
        if reader is None:
            raise InputError(
                f"expected a file that ends in .csv, .parquet or .npz, got {path.name}; convert or rename it"
            )
        return reader(path, target, client, features)
    except OSError as error:
        raise InputError(f"expected a file that can be read, got {shown} ({error.strerror})") from error


def numbers(values: Column, table: Table, column: str) -> np.ndarray:
    """Convert one column to float64.

    Args:
        values: The values of the column.
        table: The table, for the message.
        column: The name of the column, for the message.

    Raises:
        InputError: If a value is not a finite number. The message names the column and the line.
    """
    try:
        out = np.array(values, np.float64)
    except ValueError:
        out = np.array([_number(value) for value in values])
    bad = np.flatnonzero(~(np.abs(out) <= LARGEST))
    if len(bad):
        value = str(values[bad[0]]).strip()
        got = f"{value!r}" if value else "nothing"
        raise InputError(
            f"{table.path.name}: expected a finite number in column {column!r}, "
            f"got {got} on {table.place(int(bad[0]))}; remove the row, fill in a number, or code the column as numbers"
        )
    return out


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return float("nan")


def listed(names: Sequence[str]) -> str:
    """Join names for a message, at most ten of them."""
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _read_csv(path: Path, target: str | None, client: str | None, features: Sequence[str] | None) -> Table:
    header, rows, lines = _csv_rows(path)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    by_name: dict[str, Column] = dict(zip(header, columns, strict=True))
    return _table(path, header, len(rows), lines, lambda _: by_name, target, client, features)


def _read_parquet(path: Path, target: str | None, client: str | None, features: Sequence[str] | None) -> Table:
    header, rows = parquet_header(path)
    if not header:
        raise InputError(f"{path.name}: expected columns, got a Parquet file without any")
    _check_names(path, header)
    return _table(path, header, rows, None, lambda names: parquet_columns(path, names), target, client, features)


def _table(
    path: Path,
    header: list[str],
    rows: int,
    lines: Sequence[int] | None,
    read: Callable[[Sequence[str]], Mapping[str, Column]],
    target: str | None,
    client: str | None,
    features: Sequence[str] | None,
) -> Table:
    """Build the table of a file that has features, target and client as columns. `read` returns some columns."""
    if target is None:
        target = next(name for name in reversed(header) if name != client or len(header) == 1)
    for key, wanted in (("target", target), ("client", client)):
        if wanted and wanted not in header:
            raise InputError(
                f"{path.name}: expected a column {wanted!r} (data.{key}), got columns {listed(header)}; "
                "correct the name"
            )
    if target and target == client:
        raise InputError(
            f"{path.name}: expected different columns for data.target and data.client, got {target!r} twice"
        )
    names = tuple(name for name in header if name not in (target, client))
    if not rows or not names:
        raise InputError(f"{path.name}: expected rows and feature columns, got {rows} rows and {len(names)} features")
    if features is not None:
        asked = set(features)
        names = tuple(name for name in names if name in asked)
    values = read([*names, *(name for name in (target, client) if name)])
    table = Table(
        path=path,
        feature_names=names,
        features=tuple(values[name] for name in names),
        target_name=target,
        targets=_texts(values[target]) if target else (),
        clients=_texts(values[client]) if client else None,
        lines=lines,
        rows=rows,
    )
    if table.clients and "" in table.clients:
        raise InputError(
            f"{path.name}: expected a client in column {client!r}, got nothing on "
            f"{table.place(table.clients.index(''))}; fill in the name or remove the row"
        )
    return table


def _texts(values: Column) -> list[str]:
    return [str(value).strip() for value in (values.tolist() if isinstance(values, np.ndarray) else values)]


def _csv_rows(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.readline()
            stream.seek(0)
            delimiter = next((mark for mark in ",;\t" if mark in first), ",")
            reader = csv.reader(stream, delimiter=delimiter)
            header = [name.strip() for name in next(reader, [])]
            _check_header(path, header)
            rows, lines = [], []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise InputError(
                        f"{path.name}: expected {len(header)} values, as in the header, got {len(row)} on line "
                        f"{reader.line_num}; correct the line"
                    )
                rows.append(row)
                lines.append(reader.line_num)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path.name}: expected a CSV file in UTF-8, got something else ({error}); convert it"
        ) from error
    return header, rows, lines


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise InputError(f"{path.name}: expected a header line with column names, got an empty file")
    if all(_number(name) == _number(name) for name in header) and header != [str(i) for i in range(len(header))]:
        raise InputError(
            f"{path.name}: expected a header line with column names, got numbers ({listed(header)}); add it"
        )
    _check_names(path, header)


def _check_names(path: Path, names: list[str]) -> None:
    if "" in names:
        raise InputError(
            f"{path.name}: expected a name for every column, got none for column {names.index('') + 1}; "
            "name it, or remove it if it only numbers the rows"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{path.name}: expected different column names, got {listed(twice)} twice; rename one")


def _read_npz(path: Path, target: str | None, client: str | None, _: Sequence[str] | None) -> Table:
    try:
        arrays = read_npz(path)
    except ValueError as error:
        raise InputError(
            f"{path.name}: expected an NPZ file without Python objects, got {error}; save it again"
        ) from error
    target, owner = "y" if target is None else target, client or "client"
    needed = ["x", *([target] if target else []), *([client] if client else [])]
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise InputError(
            f"{path.name}: expected arrays {listed(needed)}, got {listed(list(arrays)) or 'none'}; "
            f"add {listed(missing)} or correct data.target or data.client"
        )
    x = arrays["x"]
    if x.ndim != 2 or x.dtype.kind not in "fiub" or 0 in x.shape:
        raise InputError(f"{path.name}: expected x as rows x features of numbers, got shape {x.shape} of {x.dtype}")
    names = arrays.get("feature_names", np.array([f"x{i}" for i in range(x.shape[1])]))
    lengths = {"feature_names": (names, x.shape[1])}
    lengths |= {key: (arrays[key], len(x)) for key in (target, owner) if key in arrays and target}
    for key, (array, length) in lengths.items():
        if array.shape != (length,):
            raise InputError(f"{path.name}: expected {length} values in {key}, got shape {array.shape}; x is {x.shape}")
    _check_names(path, [str(name) for name in names])
    return Table(
        path=path,
        feature_names=tuple(str(name) for name in names),
        features=tuple(x.T),
        target_name=target,
        targets=_texts(arrays[target]) if target else (),
        clients=_texts(arrays[owner]) if target and owner in arrays else None,
        lines=None,
        rows=len(x),
        named="feature_names" in arrays,
    )


READERS: dict[str, Callable[[Path, str | None, str | None, Sequence[str] | None], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_csv,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".npz": _read_npz,
}
