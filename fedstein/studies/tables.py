"""Tables of studies as CSV files that grow line by line, so that a study that was stopped can go on."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def known(path: Path, keys: Sequence[str]) -> set[tuple[str, ...]]:
    """Return the keys of the lines that a table has already.

    Args:
        path: The file; it need not exist.
        keys: The columns that tell lines apart.

    Returns:
        The values of these columns in every line.
    """
    return {tuple(line[key] for key in keys) for line in lines_of(path)}


def lines_of(path: Path) -> list[dict[str, str]]:
    """The lines of a table; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def add(path: Path, line: dict[str, Any]) -> None:
    """Append a line to a table and print it.

    Args:
        path: The file.
        line: The values by column, in the order of the columns.
    """
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(line), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in line.items()})
    print(line, flush=True)
