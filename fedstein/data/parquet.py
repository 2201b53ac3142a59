"""Parquet files, read with pyarrow (the extra ``parquet``): first the column names, then the values of some columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedstein.errors import InputError

INDEX = re.compile(r"__index_level_\d+__")  # the name that pandas gives to a saved index
T = TypeVar("T")


def parquet_header(path: Path) -> tuple[list[str], int]:
    """Read the names of the columns and the number of rows.

    Raises:
        InputError: If pyarrow is not installed or the file is damaged.
    """

    def header(file: Any) -> tuple[list[str], int]:
        return [name for name in file.schema_arrow.names if not INDEX.fullmatch(name)], file.metadata.num_rows

    return _with_file(path, header)


def parquet_columns(path: Path, names: Sequence[str]) -> dict[str, Sequence[str] | np.ndarray]:
    """Read the named columns.

    Args:
        path: The file.
        names: The columns to read. Other columns may have any type.

    Returns:
        For each name an array of numbers or booleans, or a list of texts with "" for a missing value.

    Raises:
        InputError: If a named column is of another type, pyarrow is not installed, or the file is damaged.
    """

    def columns(file: Any) -> dict[str, Sequence[str] | np.ndarray]:
        for name in names:
            _check_type(path, name, file.schema_arrow.field(name).type)
        table = file.read(columns=list(names), use_threads=False)
        if names and table.num_rows != file.metadata.num_rows:
            raise ValueError(f"{table.num_rows} rows where the footer says {file.metadata.num_rows}")
        return {name: _values(table.column(table.schema.get_field_index(name))) for name in names}

    return _with_file(path, columns)


def _with_file(path: Path, read: Callable[[Any], T]) -> T:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise InputError(
            f"{path.name}: expected pyarrow to read a Parquet file with, got none installed; "
            "pip install 'fedstein[parquet]', or save the file as CSV or NPZ"
        ) from None
    with path.open("rb") as stream:  # opened here, so that an OSError of pyarrow concerns the content only
        try:
            with ParquetFile(stream, page_checksum_verification=True) as file:
                return read(file)
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
            line = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            said = "".join(mark if mark.isprintable() else "?" for mark in line)
            raise InputError(
                f"{path.name}: expected a valid Parquet file, got one that cannot be read ({said}); save it again"
            ) from error


def _check_type(path: Path, name: str, kind: Any) -> None:
    from pyarrow import types

    value = kind.value_type if types.is_dictionary(kind) else kind
    supported = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_decimal,
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_null,
    )
    if not any(is_kind(value) for is_kind in supported):
        raise InputError(
            f"{path.name}: expected numbers, booleans or text in column {name!r}, got {kind}; "
            "convert the column, or leave it out with data.drop"
        )


def _values(column: Any) -> Sequence[str] | np.ndarray:
    import pyarrow
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    numeric = types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)
    if numeric and column.null_count == 0:
        return column.to_numpy()
    if types.is_boolean(column.type):  # so that the message names the missing value, not "True"
        column = column.cast(pyarrow.int8())
    return ["" if value is None else str(value) for value in column.to_pylist()]
