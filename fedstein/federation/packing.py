"""Lossless packing of a message's encoded arrays into fewer bytes.

Codes of few bits are far from evenly distributed: most numbers are small compared with the largest of their group. A
Huffman code gives frequent bytes few bits. This module uses that of DEFLATE, without the search for repetitions,
because numbers with a dither do not repeat. Numbers of several bytes are written byte plane by byte plane, because
signs and exponents resemble each other and the last bits of a mantissa do not. An array that does not get smaller is
not compressed.

A packed message is one array of bytes: the length of the table of contents (four bytes), the table as JSON, and the
content of each array. A Huffman code has at least one bit for each byte, so unpacking makes nothing more than eight
times as large. A message that claims more is refused before memory is allocated.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedstein.errors import FedsteinError, InputError
from fedstein.inference.sites.base import Arrays

PACKED = "packed"  # the name of the only array of a packed message
LEAST = 512  # smaller arrays are not compressed
MOST_AXES = 8
INTEGERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
DTYPES = (*INTEGERS, "float16", "float32", "float64")


def pack(arrays: Mapping[str, Any]) -> Arrays:
    """Pack arrays into one array of bytes.

    Args:
        arrays: The arrays of a message as the codec wrote them.

    Returns:
        The packed message. It is never longer than ``largest`` says.

    Raises:
        InputError: The codec wrote something other than numbers.
    """
    contents, parts = [], []
    for name, array in arrays.items():
        plain = np.asarray(array, order="C")
        if plain.dtype.name not in DTYPES:
            raise InputError(
                f"channel.packing = 'deflate' packs arrays of numbers, and the codec writes {name!r} as {plain.dtype}; "
                "set channel.packing = 'none' or take another codec"
            )
        raw = plain.astype(plain.dtype.newbyteorder("<"), copy=False).tobytes()
        short = _deflate(raw, plain.dtype.itemsize) if len(raw) >= LEAST else raw
        smaller = len(short) < len(raw)
        parts.append(short if smaller else raw)
        contents.append([name, plain.dtype.name, list(plain.shape), smaller, len(parts[-1])])
    table = json.dumps(contents, separators=(",", ":")).encode()
    whole = b"".join([len(table).to_bytes(4, "little"), table, *parts])
    return {PACKED: np.frombuffer(whole, np.uint8)}


def largest(arrays: Mapping[str, Any]) -> int:
    """The most bytes that ``pack`` makes of arrays with these names, shapes and dtypes."""
    contents = [[name, a.dtype.name, list(a.shape), False, int(a.nbytes)] for name, a in arrays.items()]
    return 4 + len(json.dumps(contents, separators=(",", ":"))) + sum(int(a.nbytes) for a in arrays.values())


def unpack(arrays: Mapping[str, Any]) -> Arrays:
    """Read what ``pack`` wrote.

    Args:
        arrays: The packed message.

    Returns:
        The arrays as the codec wrote them, bit for bit.

    Raises:
        FedsteinError: The message was not written by ``pack``; the text says why.
    """
    if set(arrays) != {PACKED}:
        raise FedsteinError(f"expected a packed message, got arrays {sorted(arrays)}")
    packed = np.asarray(arrays[PACKED])
    if packed.dtype != np.uint8 or packed.ndim != 1:
        raise FedsteinError(f"a packed message is {packed.dtype} {packed.shape}; expected one axis of bytes")
    whole = packed.tobytes()
    start = 4 + int.from_bytes(whole[:4], "little")
    try:
        table = json.loads(whole[4:start])
        entries = [_entry(*entry) for entry in table]
    except (ValueError, TypeError, RecursionError) as error:
        raise FedsteinError(f"the table of contents of a packed message is damaged: {error!s:.200}") from None
    names = [name for name, *_ in entries]
    if len(set(names)) != len(names) or start + sum(length for *_, length in entries) != len(whole):
        raise FedsteinError("the table of contents of a packed message does not fit its bytes")
    found: Arrays = {}
    for name, dtype, shape, smaller, length in entries:
        raw, size = whole[start : start + length], math.prod(shape) * dtype.itemsize
        start += length
        if smaller:
            raw = _inflate(name, raw, size, dtype.itemsize)
        if len(raw) != size:
            raise FedsteinError(f"{name!r} of a packed message needs {size} bytes, got {len(raw)}")
        found[name] = np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)
    return found


def _entry(name: Any, dtype: Any, shape: Any, smaller: Any, length: Any) -> tuple[str, Any, tuple[int, ...], bool, int]:
    """One line of the table of contents, checked."""
    sizes = isinstance(shape, list) and len(shape) <= MOST_AXES and all(type(n) is int and n >= 0 for n in shape)
    if not isinstance(name, str) or dtype not in DTYPES or type(smaller) is not bool or type(length) is not int:
        raise ValueError("an entry is not a name, a dtype, a shape, whether it is deflated, and a length")
    if not sizes or length < 0 or math.prod(shape) * np.dtype(dtype).itemsize > 8 * length:
        raise ValueError(f"{name!r:.60} cannot have the shape {shape!r:.60} in {length} bytes")
    return name, np.dtype(dtype), tuple(shape), smaller, length


def _deflate(raw: bytes, itemsize: int) -> bytes:
    if itemsize > 1:
        raw = np.ascontiguousarray(np.frombuffer(raw, np.uint8).reshape(-1, itemsize).T).tobytes()
    writer = zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    return writer.compress(raw) + writer.flush()


def _inflate(name: str, short: bytes, size: int, itemsize: int) -> bytes:
    reader = zlib.decompressobj(-15)
    try:
        raw = reader.decompress(short, size + 1)
    except zlib.error as error:
        raise FedsteinError(f"{name!r} of a packed message is damaged: {error}") from None
    if len(raw) != size or not reader.eof or reader.unused_data or reader.unconsumed_tail:
        raise FedsteinError(f"{name!r} of a packed message is not {size} bytes when it is inflated")
    if itemsize > 1:
        return np.ascontiguousarray(np.frombuffer(raw, np.uint8).reshape(itemsize, -1).T).tobytes()
    return raw
