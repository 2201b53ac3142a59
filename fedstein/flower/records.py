"""Messages as Flower's records, and back.

Flower sends every record, array and chunk of an array in a request of its own, to the link and from it, and a request
takes the link about 10 ms of processor time, however small it is. Small arrays are therefore values of the record that
holds the head. Large ones are a record of their own, which Flower uploads once for all messages that have it in common.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedstein.flower.messages import Envelope, Head, InvalidMessage, RawArray, from_raw, to_raw
from fedstein.inference.sites.base import Arrays

HEAD, ARRAYS = "fedstein.head", "fedstein.arrays"
RAW = "fedstein.raw"  # the format of our arrays; arrays of other formats are not read
SMALL = 2**16  # bytes of arrays that travel with the head
# Values beside those of the head: a list each, with an entry for each array. A shape is its sizes with commas between.
NAMES, TYPES, SHAPES, BYTES = FIELDS = ("array.names", "array.types", "array.shapes", "array.bytes")

Value = TypeVar("Value", str, bytes)


class Content(NamedTuple):
    """The arrays of one or more messages, as Flower gets them."""

    values: dict[str, Any]  # what small arrays add to the record of the head
    record: ArrayRecord | None  # large arrays


def arrays_content(arrays: Arrays) -> Content:
    """Convert arrays to the form in which Flower gets them.

    Args:
        arrays: Arrays by name.

    Returns:
        The content. It can be part of many messages; Flower uploads large arrays once.

    Raises:
        TypeError: An array has a dtype that cannot be sent.
    """
    raw = {name: to_raw(array) for name, array in arrays.items()}
    if sum(len(r.data) for r in raw.values()) > SMALL:
        return Content({}, ArrayRecord({k: Array(r.dtype, r.shape, RAW, r.data) for k, r in raw.items()}))
    if not raw:
        return Content({}, None)
    shapes = [",".join(map(str, r.shape)) for r in raw.values()]
    types, data = [r.dtype for r in raw.values()], [r.data for r in raw.values()]
    return Content({NAMES: list(raw), TYPES: types, SHAPES: shapes, BYTES: data}, None)


def to_record(head: Head, arrays: Content) -> RecordDict:
    """The content of a Flower message: the head and the arrays."""
    records: dict[str, Any] = {HEAD: ConfigRecord({**head, **arrays.values})}
    return RecordDict(records if arrays.record is None else {**records, ARRAYS: arrays.record})


def from_record(record: RecordDict) -> Envelope:
    """Read the content of a Flower message.

    Args:
        record: The record that arrived.

    Returns:
        The head and the arrays.

    Raises:
        InvalidMessage: The record was not made by ``to_record``, or an array in it cannot be read.
    """
    head, large = record.get(HEAD), record.get(ARRAYS)
    others = len(record) != 1 + (large is not None)
    if not isinstance(head, ConfigRecord) or not isinstance(large, ArrayRecord | None) or others:
        got = f"{sorted(record)!r:.200}"
        raise InvalidMessage(f"expected the records {HEAD} and {ARRAYS}, or the first alone, got {got}")
    values = {key: value for key, value in head.items() if key not in FIELDS}
    if large is None:
        return Envelope(values, _small(head))
    if len(values) != len(head):
        raise InvalidMessage(f"expected arrays in {HEAD} or in {ARRAYS}, got both")
    return Envelope(values, {str(name): _large(str(name), array) for name, array in large.items()})


def _small(head: ConfigRecord) -> Arrays:
    """The arrays beside the head; none if it has none of their fields."""
    if not any(field in head for field in FIELDS):
        return {}
    names, types, shapes = (_list(head, field, str) for field in (NAMES, TYPES, SHAPES))
    data = _list(head, BYTES, bytes)
    if not len(set(names)) == len(names) == len(types) == len(shapes) == len(data):
        raise InvalidMessage(f"expected four lists with an entry for each array, got names {names!r:.200}")
    every = zip(names, types, shapes, data, strict=True)
    return {name: from_raw(name, RawArray(dtype, _shape(name, text), some)) for name, dtype, text, some in every}


def _list(head: ConfigRecord, field: str, kind: type[Value]) -> list[Value]:
    found: Any = head.get(field)
    if not isinstance(found, list) or not all(isinstance(entry, kind) for entry in found):
        raise InvalidMessage(f"{field} is not a list of {kind.__name__}, but {found!r:.80}")
    return found


def _shape(name: str, text: str) -> tuple[int, ...]:
    sizes = text.split(",") if text else []
    if not all(size.isascii() and size.isdecimal() and len(size) <= 13 for size in sizes):
        raise InvalidMessage(f"array {name!r} has an invalid shape {text!r:.80}")
    return tuple(map(int, sizes))


def _large(name: str, array: Any) -> Any:
    if array.stype != RAW:
        raise InvalidMessage(f"array {name!r} is serialised as {array.stype!r}; expected {RAW!r}")
    return from_raw(name, RawArray(array.dtype, tuple(array.shape), array.data))
