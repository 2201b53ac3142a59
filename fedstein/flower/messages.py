"""Messages between server and nodes: a head of plain values, and named arrays. This module does not use Flower.

Arrays are raw little-endian bytes with their dtype and shape beside them. There is no pickle and nothing to execute.
The receiver checks names, dtypes, shapes and lengths, and that numbers are finite. A message that fails a check raises
``InvalidMessage``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedstein.errors import FedsteinError
from fedstein.inference.sites.base import Arrays

FORMAT = 2
DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
LARGEST = 2**40  # the most bytes of one array; a larger size is an error
MOST_AXES = 8
# Prefixes of further arrays in a request: the run's set-up, the client's own site, and this round's broadcast if
# the client has lost it.
SETUP, RESTORE, HELD = "setup/", "restore/", "held/"
# Prefixes of arrays for an evaluation beside a report, of its sums in the reply, and of training beside a report.
EVALUATE, TRAIN = "evaluate/", "train/"

BROADCAST = "broadcast"  # in the head of a request for report and training: the training uses the broadcast too
SECURE = "secure"  # the kind of the requests of a secure sum

Head = dict[str, Any]  # str, int, float and bool
# Name -> shape, dtype. The expected shape (-n,) allows any number of elements up to n.
Shapes = Mapping[str, tuple[tuple[int, ...], str]]
Check = Callable[[Arrays], str]  # what is wrong with arrays of the right shapes; empty if nothing is


class InvalidMessage(FedsteinError):
    """A message that does not have the required form or content. The text says why."""


class Envelope(NamedTuple):
    """One message, in either direction."""

    head: Head
    arrays: Arrays


class RawArray(NamedTuple):
    """An array as it is sent."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def to_raw(array: Any) -> RawArray:
    """Convert an array to the form in which it is sent.

    Args:
        array: A NumPy or JAX array.

    Returns:
        Its dtype, its shape and its little-endian bytes.

    Raises:
        TypeError: The dtype is not one of ``DTYPES``.
    """
    plain = np.asarray(array, order="C")
    if plain.dtype.name not in DTYPES:
        raise TypeError(f"arrays of {plain.dtype} cannot be sent; expected one of {', '.join(DTYPES)}")
    return RawArray(plain.dtype.name, plain.shape, plain.astype(plain.dtype.newbyteorder("<"), copy=False).tobytes())


def from_raw(name: str, raw: RawArray) -> np.ndarray:
    """Convert an array back from the form in which it was sent.

    Args:
        name: The array's name, for messages.
        raw: The array as it arrived.

    Returns:
        The array.

    Raises:
        InvalidMessage: The dtype or the shape is invalid, or the number of bytes does not fit them.
    """
    if raw.dtype not in DTYPES:
        raise InvalidMessage(f"array {name!r} has dtype {raw.dtype!r}; expected one of {', '.join(DTYPES)}")
    sizes = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= LARGEST for n in raw.shape)
    if not sizes or len(raw.shape) > MOST_AXES:
        raise InvalidMessage(f"array {name!r} has an invalid shape {raw.shape!r:.80}")
    dtype = np.dtype(raw.dtype)
    expected = math.prod(raw.shape) * dtype.itemsize
    if expected > LARGEST or len(raw.data) != expected:
        raise InvalidMessage(f"array {name!r} of {raw.dtype} {raw.shape} needs {expected} bytes, got {len(raw.data)}")
    try:
        return np.frombuffer(raw.data, dtype.newbyteorder("<")).astype(dtype).reshape(raw.shape)
    except ValueError as error:  # an empty array with sizes whose product NumPy cannot represent
        raise InvalidMessage(f"array {name!r} of {raw.dtype} {raw.shape} cannot be made: {error}") from None


def digest(arrays: Arrays) -> str:
    """Compute one checksum of named arrays.

    Args:
        arrays: Arrays by name. Their order makes no difference.

    Returns:
        A SHA-256 in hexadecimal digits; it changes with every name, dtype, shape and byte.
    """
    found = hashlib.sha256()
    for name in sorted(arrays):
        raw = to_raw(arrays[name])
        found.update(f"{name} {raw.dtype} {raw.shape};".encode())
        found.update(raw.data)
    return found.hexdigest()


def shapes_of(arrays: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shape and the dtype of each array, in the form that ``check_arrays`` takes."""
    return {name: (tuple(array.shape), str(array.dtype)) for name, array in arrays.items()}


def bytes_of(shape: tuple[int, ...], dtype: str) -> int:
    """The bytes of an array of this shape and dtype; if the shape is a limit, the most bytes that it may have."""
    return abs(math.prod(shape)) * np.dtype(dtype).itemsize


def shape_fits(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Whether an array's shape is the expected one, or within the limit that it sets."""
    if len(expected) == 1 and expected[0] < 0:
        return len(shape) == 1 and shape[0] <= -expected[0]
    return shape == expected


def check_arrays(arrays: Arrays, expected: Shapes, check: Check | None = None) -> None:
    """Check the arrays of a message.

    Args:
        arrays: The arrays that arrived.
        expected: The names, shapes and dtypes that it must have.
        check: Returns what else is wrong with the arrays. Without it, every number must be finite.

    Raises:
        InvalidMessage: The arrays are not as expected.
    """
    if set(arrays) != set(expected):
        raise InvalidMessage(f"expected arrays {sorted(expected)}, got {sorted(arrays)}")
    for name, (shape, dtype) in expected.items():
        array = arrays[name]
        if not shape_fits(array.shape, shape) or array.dtype.name != dtype:
            raise InvalidMessage(f"expected {name!r} as {dtype} {shape}, got {array.dtype.name} {array.shape}")
        if check is None and not np.isfinite(array).all():
            raise InvalidMessage(f"{name!r} holds numbers that are not finite (NaN or infinity)")
    if check is not None and (problem := check(arrays)):
        raise InvalidMessage(problem)


def with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays of a message whose names have the prefix, under their names without it."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def without_prefix(arrays: Arrays) -> Arrays:
    """The arrays of a message that are the request itself: those whose names have no prefix."""
    return {
        name: array for name, array in arrays.items() if not name.startswith((SETUP, RESTORE, HELD, EVALUATE, TRAIN))
    }


def value(head: Head, key: str, kind: type) -> Any:
    """Read an entry of a head.

    Args:
        head: The head.
        key: The entry's name.
        kind: The type that it must have.

    Returns:
        The entry's value.

    Raises:
        InvalidMessage: The entry is missing or has another type.
    """
    found = head.get(key)
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise InvalidMessage(f"expected {key!r} as {kind.__name__} in the head, got {found!r:.80}")
    return found


def check_reply(request: Envelope, reply: Envelope) -> None:
    """Check that a reply belongs to the request: the same format, run, round, client and kind.

    Args:
        request: The request that was sent.
        reply: The reply that arrived.

    Raises:
        InvalidMessage: The reply belongs to another request, or its status is unknown.
    """
    for key in ("format", "run", "kind", "round", "client"):
        if reply.head.get(key) != request.head[key] or isinstance(reply.head.get(key), bool):
            raise InvalidMessage(f"expected a reply with {key} {request.head[key]!r}, got {reply.head.get(key)!r:.80}")
    status = value(reply.head, "status", str)
    if status not in STATUSES:
        raise InvalidMessage(f"expected a status from {', '.join(STATUSES)}, got {status!r:.80}")


OK, NEEDS_SETUP, NEEDS_HELD, OUT_OF_SYNC, REFUSED = STATUSES = (
    "ok",
    "needs-setup",  # the node does not have the set-up arrays of the run
    "needs-held",  # the node has lost the broadcast that it received before
    "out-of-sync",  # the node's site is not the one that the server accepted last
    "refused",  # the node cannot take part; the reason is in the head
)
