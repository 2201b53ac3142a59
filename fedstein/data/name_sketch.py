"""A table of numbers that holds names with counts and can be added up, so that a secure sum can find unknown names.

A secure sum adds arrays of one shape, and the names of categories are not known beforehand. Each client therefore
writes its names into an invertible Bloom lookup table (Goodrich and Mitzenmacher 2011). A name n of column c with m
rows, k of them to train on, has the key

    v(c, n) = (c, the bytes of n in words of 24 bits, a check of 48 bits),

and the client adds (k, m, m v) to one cell in each of four parts of the table. Tables of several clients add up, and
equal names have equal cells. In the sum, a cell that holds a single name reveals it: every entry is a multiple of m,
and the check fits. The name is then subtracted from its other cells, which leaves further cells with a single name,
until the table is empty. If the table does not become empty, it had too many names. All numbers are integers below
2^53, so that sums are exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fedstein.errors import InputError

PARTS = 4  # the parts of a table; a name has one cell in each part
CELLS_OF_A_COLUMN = 64  # cells of a part for each column; 50 names a column cannot be read with a probability < 1e-4
NAME_BYTES, WORD_BYTES = 48, 3
MOST_ROWS = 2 ** (53 - 8 * WORD_BYTES - 1)  # rows of all clients together up to which products are exact
KEY = 1 + NAME_BYTES // WORD_BYTES + 2
WIDTH = 2 + KEY


class Counted(NamedTuple):
    """A name of a column, with its rows and with those to train on."""

    column: int
    name: str
    rows: int
    training: int


def table_shape(columns: int) -> tuple[int, int, int]:
    """The shape of a table for that many columns."""
    return PARTS, CELLS_OF_A_COLUMN * columns, WIDTH


def write_table(entries: Iterable[Counted], columns: int, salt: str) -> np.ndarray:
    """Write names and counts into a table.

    Args:
        entries: The names of one client, each once in its column.
        columns: How many columns the table is for.
        salt: Decides which cells a name gets; it is the same for all clients of a sum.

    Returns:
        The table: integers, stored as float64.

    Raises:
        InputError: A name is too long for a table, or there are too many rows.
    """
    table = np.zeros(table_shape(columns))
    for entry in entries:
        if entry.rows > MOST_ROWS:
            raise InputError(f"expected at most {MOST_ROWS} rows for a secure sum of names, got {entry.rows}")
        key = key_of(entry.column, entry.name, salt)
        added = np.concatenate([[entry.training, entry.rows], entry.rows * key])
        for part, cell in enumerate(cells_of(key, table.shape[1], salt)):
            table[part, cell] += added
    return table


def read_table(total: np.ndarray, salt: str) -> list[Counted] | None:
    """Read the names of a sum of tables.

    Args:
        total: The sum of the clients' tables, which ``write_table`` made.
        salt: The salt of these tables.

    Returns:
        Every name with its counts over all clients; None if there are too many names, or if ``total`` is not a sum of
        tables.
    """
    left, found = np.rint(np.asarray(total, np.float64)), []
    waiting = [(part, cell) for part in range(left.shape[0]) for cell in range(left.shape[1])]
    while waiting:
        part, cell = waiting.pop()
        held = left[part, cell].copy()
        rows = held[1]
        if not 0 < rows <= MOST_ROWS or not 0 <= held[0] <= rows or (held[2:] % rows).any():
            continue
        key = held[2:] / rows
        name = _name_in(key)
        if name is None or not np.array_equal(key, key_of(int(key[0]), name, salt)):
            continue
        found.append(Counted(int(key[0]), name, int(rows), int(held[0])))
        for each in enumerate(cells_of(key, left.shape[1], salt)):
            left[each] -= held
            waiting.append(each)
        if len(found) > left.size:  # more names than the table has numbers: no client wrote this
            return None
    return None if left.any() else found


def key_of(column: int, name: str, salt: str) -> np.ndarray:
    """The key of a name: the column, the name's bytes in words, and the check.

    Raises:
        InputError: The name is too long, or has a character that tables cannot hold.
    """
    written = name.encode()
    if not 0 < len(written) <= NAME_BYTES or "\0" in name:
        raise InputError(
            f"a secure sum takes names of categories of 1 to {NAME_BYTES} bytes, got one of {len(written)}; list the "
            "names in data.categories, and with data.missing set data.fill"
        )
    words = np.frombuffer(written.ljust(NAME_BYTES, b"\0"), np.uint8).reshape(-1, WORD_BYTES)
    check = np.frombuffer(_digest(salt, column, written)[: 2 * WORD_BYTES], np.uint8).reshape(-1, WORD_BYTES)
    places = 256.0 ** np.arange(WORD_BYTES)
    return np.concatenate([[float(column)], words @ places, check @ places])


def cells_of(key: np.ndarray, cells: int, salt: str) -> list[int]:
    """The cell of a key in each part of a table."""
    spread = _digest(salt, "cells", key.astype(np.int64).tobytes())
    return [int.from_bytes(spread[8 * part : 8 * part + 8], "big") % cells for part in range(PARTS)]


def _digest(salt: str, about: int | str, text: bytes) -> bytes:
    return hashlib.sha256(f"{salt} {about} ".encode() + text).digest()


def _name_in(key: np.ndarray) -> str | None:
    """The name in a key; None if it is not a valid key."""
    words = key[1 : 1 + NAME_BYTES // WORD_BYTES]
    if (key < 0).any() or (key >= 256**WORD_BYTES).any():
        return None
    written = b"".join(int(word).to_bytes(WORD_BYTES, "little") for word in words).rstrip(b"\0")
    try:
        name = written.decode()
    except UnicodeDecodeError:
        return None
    return name if name and "\0" not in name else None
