"""Letters as Flower's records and back."""

from __future__ import annotations

from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedstein.engines.flower.letters import BadLetter, Head, Letter, RawArray, from_raw, to_raw
from fedstein.sites.base import Arrays

HEAD, ARRAYS = "fedstein.head", "fedstein.arrays"
RAW = "fedstein.raw"  # how the bytes of our arrays are to be read; nothing else is


def array_record(arrays: Arrays) -> ArrayRecord:
    """One record can be part of many messages: Flower uploads it once."""
    raw = {name: to_raw(array) for name, array in arrays.items()}
    return ArrayRecord({name: Array(dtype=r.dtype, shape=r.shape, stype=RAW, data=r.data) for name, r in raw.items()})


def to_record(head: Head, arrays: ArrayRecord) -> RecordDict:
    return RecordDict({HEAD: ConfigRecord(head), ARRAYS: arrays})


def from_record(record: RecordDict) -> Letter:
    """A letter, or a ``BadLetter`` where the record is none of ours."""
    head, arrays = record.get(HEAD), record.get(ARRAYS)
    if not isinstance(head, ConfigRecord) or not isinstance(arrays, ArrayRecord) or len(record) != 2:
        raise BadLetter(f"expected the records {HEAD} and {ARRAYS}, got {sorted(record)!r:.200}")
    return Letter(dict(head), {name: _array(name, array) for name, array in arrays.items()})


def _array(name: Any, array: Array) -> Any:
    if array.stype != RAW:
        raise BadLetter(f"array {name!r} is serialised as {array.stype!r}; expected {RAW!r}")
    return from_raw(str(name), RawArray(array.dtype, tuple(array.shape), array.data))
