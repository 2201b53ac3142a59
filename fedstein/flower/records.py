"""Messages as Flower's records, and back."""

from __future__ import annotations

from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedstein.flower.messages import Envelope, Head, InvalidMessage, RawArray, from_raw, to_raw
from fedstein.inference.sites.base import Arrays

HEAD, ARRAYS = "fedstein.head", "fedstein.arrays"
RAW = "fedstein.raw"  # the format of our arrays; arrays of other formats are not read


def array_record(arrays: Arrays) -> ArrayRecord:
    """Convert arrays to one of Flower's records.

    Args:
        arrays: Arrays by name.

    Returns:
        The record. It can be part of many messages, and Flower uploads it once.

    Raises:
        TypeError: An array has a dtype that cannot be sent.
    """
    raw = {name: to_raw(array) for name, array in arrays.items()}
    return ArrayRecord({name: Array(dtype=r.dtype, shape=r.shape, stype=RAW, data=r.data) for name, r in raw.items()})


def to_record(head: Head, arrays: ArrayRecord) -> RecordDict:
    """The content of a Flower message: the head and the arrays."""
    return RecordDict({HEAD: ConfigRecord(head), ARRAYS: arrays})


def from_record(record: RecordDict) -> Envelope:
    """Read the content of a Flower message.

    Args:
        record: The record that arrived.

    Returns:
        The head and the arrays.

    Raises:
        InvalidMessage: The record was not made by ``to_record``, or an array in it cannot be read.
    """
    head, arrays = record.get(HEAD), record.get(ARRAYS)
    if not isinstance(head, ConfigRecord) or not isinstance(arrays, ArrayRecord) or len(record) != 2:
        raise InvalidMessage(f"expected the records {HEAD} and {ARRAYS}, got {sorted(record)!r:.200}")
    return Envelope(dict(head), {name: _array(name, array) for name, array in arrays.items()})


def _array(name: Any, array: Array) -> Any:
    if array.stype != RAW:
        raise InvalidMessage(f"array {name!r} is serialised as {array.stype!r}; expected {RAW!r}")
    return from_raw(str(name), RawArray(array.dtype, tuple(array.shape), array.data))
