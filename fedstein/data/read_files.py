"""Reading a CSV, Parquet or NPZ file as a table. Error messages name the file, the column and the line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedstein.data.cells import as_number
from fedstein.data.npz import read_npz
from fedstein.data.parquet import parquet_columns, parquet_header
from fedstein.data.table import (
    Column,
    Table,
    choose_columns,
    listed,
    refuse_blanks,
    refuse_nameless_clients,
    table_of,
    texts,
)
from fedstein.errors import InputError


class Wanted(NamedTuple):
    """The columns of a file that are used. ``read_table`` explains the fields."""

    target: str | None = None
    client: str | None = None
    features: Sequence[str] | None = None
    drop: Sequence[str] = ()


def read_table(
    path: str | Path,
    *,
    target: str | None = None,
    client: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    folder: bool = True,
) -> Table:
    """Read a file.

    Args:
        path: A CSV, Parquet or NPZ file.
        target: The target column. None selects the last column (y in an NPZ file); "" means that there is no target.
        client: The column with the client of each row, if there is one.
        features: The only features that will be used. Other columns may then have any content.
        drop: Columns that will not be used.
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
        return reader(path, Wanted(target, client, features, drop))
    except OSError as error:
        raise InputError(f"expected a file that can be read, got {shown} ({error.strerror})") from error


def _read_csv(path: Path, wanted: Wanted) -> Table:
    header, rows, lines = _csv_rows(path)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    by_name: dict[str, Column] = dict(zip(header, columns, strict=True))
    return table_of(path.name, by_name, **wanted._asdict(), lines=lines)


def _read_parquet(path: Path, wanted: Wanted) -> Table:
    header, rows = parquet_header(path)
    if not header:
        raise InputError(f"{path.name}: expected columns, got a Parquet file without any")
    _check_names(path, header)
    target, names = choose_columns(path.name, header, *wanted)
    if not rows:
        raise InputError(f"{path.name}: expected rows and feature columns, got 0 rows and {len(names)} features")
    used = [name for name in header if name in (target, wanted.client, *names)]
    columns = parquet_columns(path, used)
    if not used:
        return Table(path.name, {}, "", (), None, rows)
    chosen = wanted._replace(target=target, features=names, drop=())._asdict()
    return replace(table_of(path.name, columns, **chosen), dropped=frozenset(wanted.drop) & set(header))


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
    if all(as_number(name) == as_number(name) for name in header) and header != [str(i) for i in range(len(header))]:
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


def _read_npz(path: Path, wanted: Wanted) -> Table:
    try:
        arrays = read_npz(path)
    except ValueError as error:
        raise InputError(
            f"{path.name}: expected an NPZ file without Python objects, got {error}; save it again"
        ) from error
    target, client = "y" if wanted.target is None else wanted.target, wanted.client
    owner = client or "client"
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
    header = [str(name) for name in names]
    _check_names(path, header)
    named = "feature_names" in arrays
    if wanted.drop and not named:
        raise InputError(f"{path.name}: data.drop needs names of columns; add an array feature_names, or remove it")
    _, used = choose_columns(path.name, header, "", None, wanted.features if named else None, wanted.drop)
    table = Table(
        name=path.name,
        features={name: column for name, column in zip(header, x.T, strict=True) if name in used},
        target_name=target,
        targets=texts(arrays[target]) if target else (),
        clients=texts(arrays[owner]) if target and owner in arrays else None,
        rows=len(x),
        named=named,
        dropped=frozenset(wanted.drop) & set(header),
    )
    refuse_blanks(table, arrays, [target] * bool(target) + [owner] * (table.clients is not None))
    refuse_nameless_clients(table, owner)
    return table


READERS: dict[str, Callable[[Path, Wanted], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_csv,
    ".data": _read_csv,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".npz": _read_npz,
}
