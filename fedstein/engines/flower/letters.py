"""What travels between server and nodes: a head of plain values and named arrays. Nothing here knows Flower.

Arrays are raw little-endian bytes with their dtype and shape beside them; there is no pickle and nothing to execute.
Whatever arrives is checked: names, dtypes, shapes, lengths, finiteness. What does not pass is a ``BadLetter``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedstein.errors import FedsteinError
from fedstein.sites.base import Arrays

FORMAT = 1
DTYPES = ("float32", "float64", "int32", "int64", "uint32")
LARGEST = 2**40  # bytes of one array: more than this is nonsense
MOST_AXES = 8
SETUP, RESTORE = "setup/", "restore/"  # prefixes of arrays that come along: the run's set-up, the client's own site

Head = dict[str, Any]  # str, int, float and bool
Shapes = Mapping[str, tuple[tuple[int, ...], str]]  # name -> shape, dtype
Check = Callable[[Arrays], str]  # what is wrong with arrays of the right shapes; empty where nothing is


class BadLetter(FedsteinError):
    """A message that is not what was asked for; the text says why."""


class Letter(NamedTuple):
    """One message, in either direction."""

    head: Head
    arrays: Arrays


class RawArray(NamedTuple):
    """An array as it is on the wire."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def to_raw(array: Any) -> RawArray:
    plain = np.asarray(array, order="C")
    if plain.dtype.name not in DTYPES:
        raise TypeError(f"arrays of {plain.dtype} do not travel; expected one of {', '.join(DTYPES)}")
    return RawArray(plain.dtype.name, plain.shape, plain.astype(plain.dtype.newbyteorder("<"), copy=False).tobytes())


def from_raw(name: str, raw: RawArray) -> np.ndarray:
    """The array, or a ``BadLetter`` where dtype, shape and bytes do not belong together."""
    if raw.dtype not in DTYPES:
        raise BadLetter(f"array {name!r} has dtype {raw.dtype!r}; expected one of {', '.join(DTYPES)}")
    sizes = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= LARGEST for n in raw.shape)
    if not sizes or len(raw.shape) > MOST_AXES:
        raise BadLetter(f"array {name!r} has shape {raw.shape!r:.80}, which is none")
    dtype = np.dtype(raw.dtype)
    expected = math.prod(raw.shape) * dtype.itemsize
    if expected > LARGEST or len(raw.data) != expected:
        raise BadLetter(f"array {name!r} of {raw.dtype} {raw.shape} needs {expected} bytes, got {len(raw.data)}")
    try:
        return np.frombuffer(raw.data, dtype.newbyteorder("<")).astype(dtype).reshape(raw.shape)
    except ValueError as error:  # no bytes, and sizes whose product is beyond NumPy
        raise BadLetter(f"array {name!r} of {raw.dtype} {raw.shape} cannot be made: {error}") from None


def digest(arrays: Arrays) -> str:
    """One checksum of named arrays."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        raw = to_raw(arrays[name])
        found.update(f"{name} {raw.dtype} {raw.shape};".encode())
        found.update(raw.data)
    return found.hexdigest()


def shapes_of(arrays: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (tuple(array.shape), str(array.dtype)) for name, array in arrays.items()}


def check_arrays(arrays: Arrays, expected: Shapes, check: Check | None = None) -> None:
    """Names, shapes and dtypes as expected, and every number finite, or else as ``check`` wants the whole."""
    if set(arrays) != set(expected):
        raise BadLetter(f"expected arrays {sorted(expected)}, got {sorted(arrays)}")
    for name, (shape, dtype) in expected.items():
        array = arrays[name]
        if array.shape != shape or array.dtype.name != dtype:
            raise BadLetter(f"expected {name!r} as {dtype} {shape}, got {array.dtype.name} {array.shape}")
        if check is None and not np.isfinite(array).all():
            raise BadLetter(f"{name!r} holds numbers that are not finite (NaN or infinity)")
    if check is not None and (problem := check(arrays)):
        raise BadLetter(problem)


def along(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays of a letter that have the prefix, without it."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def main_part(arrays: Arrays) -> Arrays:
    """The arrays of a letter that are the request itself."""
    return {name: array for name, array in arrays.items() if not name.startswith((SETUP, RESTORE))}


def value(head: Head, key: str, kind: type) -> Any:
    """One entry of a head that must be there and of that type."""
    found = head.get(key)
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise BadLetter(f"expected {key!r} as {kind.__name__} in the head, got {found!r:.80}")
    return found


def check_reply(request: Letter, reply: Letter) -> None:
    """Whether a reply belongs to the request: same format, run, round, client and kind."""
    for key in ("format", "run", "kind", "round", "client"):
        if reply.head.get(key) != request.head[key] or isinstance(reply.head.get(key), bool):
            raise BadLetter(f"expected a reply with {key} {request.head[key]!r}, got {reply.head.get(key)!r:.80}")
    status = value(reply.head, "status", str)
    if status not in STATUSES:
        raise BadLetter(f"expected a status out of {', '.join(STATUSES)}, got {status!r:.80}")


OK, NEEDS_SETUP, NEEDS_HELD, OUT_OF_SYNC, REFUSED = STATUSES = (
    "ok",
    "needs-setup",  # the node does not have the set-up arrays of the run
    "needs-held",  # the node no longer has the broadcast that it was thought to hold
    "out-of-sync",  # the node's site is not the one that the server accepted last
    "refused",  # the node cannot take part; the reason is in the head
)
