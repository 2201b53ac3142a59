"""Several files as one dataset: which files a path means, and which client each row belongs to.

A path is a file, a folder (every data file in it), a pattern such as ``sites/*.csv``, or a list of these. With several
files each file is one client, named after it, unless a column or an array names the client of each row.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.data.labels import codes
from fedstein.data.read_files import READERS
from fedstein.data.table import Table, listed
from fedstein.errors import InputError

IN_FOLDERS = tuple(suffix for suffix in READERS if suffix != ".txt")  # a .txt file in a folder is probably not a table
Paths = str | Path | Sequence[str | Path]


def expand(path: Paths) -> list[Path]:
    """List the files that a path means.

    Args:
        path: A file, a folder, a pattern, or a list of these.

    Returns:
        Absolute paths, in the order in which they were given; within a folder or a pattern, sorted by name.

    Raises:
        InputError: A folder or a pattern has no data file, or a file is listed twice.
    """
    given: list[Any] = list(path) if isinstance(path, (list, tuple)) else [path]
    if not given:
        raise InputError("expected data.path to name a file, a folder or a pattern, got an empty list")
    if wrong := [each for each in given if not isinstance(each, (str, Path)) or not str(each).strip()]:
        raise InputError(
            f"expected data.path to be a file, a folder, a pattern, or a list of these, as text, got {wrong[0]!r}"
        )
    found = [file for each in given for file in _files(Path(each).expanduser())]
    seen: set[Path] = set()
    for file in found:
        if (real := file.resolve()) in seen:
            raise InputError(f"expected every file once, got {file} twice; remove one of them")
        seen.add(real)
    return found


def file_clients(files: Sequence[Path]) -> tuple[str, ...]:
    """Name one client for each file: its name without the ending.

    Files of the same name in different folders, or with different endings, are named so that they can be told apart.

    Args:
        files: Absolute paths of different files.

    Returns:
        Different names, in the order of the files.
    """
    for name in (lambda file: file.stem, lambda file: file.name, lambda file: f"{file.parent.name}/{file.stem}"):
        names = tuple(name(file) for file in files)
        if len(set(names)) == len(names):
            return names
    return tuple(str(file) for file in files)


def owners_of(tables: Sequence[Table], files: Sequence[Path]) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Find the client of every row.

    Args:
        tables: One table for each file.
        files: Their paths.

    Returns:
        The names of the clients, and for each row of all tables together the number of its client. If a single file
        names no clients, there are no names, and None.

    Raises:
        InputError: Some files name the client of each row and others do not.
    """
    naming = [table for table in tables if table.clients is not None]
    if naming and len(naming) < len(tables):
        silent = next(table for table in tables if table.clients is None)
        raise InputError(
            f"{silent.name}: expected an array that names the client of each row, as {naming[0].name} has one; add it, "
            "or remove it from the others to have one client a file"
        )
    if naming:
        return codes([client for table in naming for client in table.clients or ()])
    if len(tables) == 1:
        return (), None
    return file_clients(files), np.repeat(np.arange(len(tables)), [table.rows for table in tables])


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = [file for file in path.iterdir() if file.suffix.lower() in IN_FOLDERS and _is_data(file)]
        what = f"the folder {path}"
    elif glob.has_magic(str(path)) and not path.exists():
        found = [file for file in map(Path, glob.glob(str(path), recursive=True)) if _is_data(file)]
        what = f"files that match {path}"
    else:
        return [path.absolute()]
    if not found:
        raise InputError(f"expected data files ({listed(IN_FOLDERS)}) in {what}, got none; correct data.path")
    return sorted(file.absolute() for file in found)


def _is_data(file: Path) -> bool:
    return file.is_file() and not file.name.startswith(".")
