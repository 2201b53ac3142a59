"""Packing: every bit comes back, fewer bytes travel, and damaged or dishonest messages are refused."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest

from fedstein.errors import FedsteinError, InputError
from fedstein.federation.packing import DTYPES, PACKED, largest, pack, unpack


def message(seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "score": np.clip(random.normal(0, 1.5, (6, 2000)), -7, 7).astype(np.int8),
        "score.scales": random.gamma(2.0, size=300).astype(np.float32),
        "rows": np.array(7, np.int64),
        "nothing": np.zeros((0, 3), np.float32),
        "noise": random.integers(0, 256, 4000).astype(np.uint8),
    }


def packed(entries: list[Any], content: bytes) -> dict[str, np.ndarray]:
    table = json.dumps(entries).encode()
    return {PACKED: np.frombuffer(len(table).to_bytes(4, "little") + table + content, np.uint8)}


def test_every_bit_comes_back_in_fewer_bytes() -> None:
    arrays = message()
    sent = pack(arrays)
    found = unpack(sent)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
    counts = np.bincount(arrays["score"].ravel() + 7)
    share = counts[counts > 0] / counts.sum()
    entropy = -float(np.sum(share * np.log2(share))) * arrays["score"].size / 8
    others = sum(array.nbytes for name, array in arrays.items() if name != "score")
    # No Huffman code is below the entropy; a bit for each byte is what it may cost above it at most.
    assert entropy < sent[PACKED].nbytes < entropy * 1.1 + others + 500
    assert sent[PACKED].nbytes <= largest(arrays)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_every_type_come_back(dtype: str):
    bits = np.random.default_rng(1).integers(0, 256, 64 * 8).astype(np.uint8)  # not-a-numbers and infinities too
    array = np.tile(bits.view(dtype), 40).reshape(4, -1)
    found = unpack(pack({"a": array}))["a"]
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def test_noise_is_written_as_it_is() -> None:
    noise = {"noise": message()["noise"]}
    assert pack(noise)[PACKED].nbytes <= largest(noise)
    many = {"zeros": np.zeros((5, 1000), np.float32)}
    assert pack(many)[PACKED].nbytes >= many["zeros"].nbytes // 8  # at least one bit for each byte


def test_something_other_than_numbers_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"writes 'signs' as bool; set channel\.packing = 'none'"):
        pack({"signs": np.array([True, False])})


def test_a_message_that_claims_more_than_its_bytes_can_hold_is_refused_before_it_is_read() -> None:
    writer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = writer.compress(bytes(10**7)) + writer.flush()  # with repetitions: a thousand to one
    assert len(bomb) < 20_000
    with pytest.raises(FedsteinError, match="cannot have the shape"):
        unpack(packed([["a", "uint8", [10**7], True, len(bomb)]], bomb))
    with pytest.raises(FedsteinError, match="not 1000 bytes when it is inflated"):
        unpack(packed([["a", "uint8", [1000], True, len(bomb)]], bomb))


@pytest.mark.parametrize(
    ("entries", "content", "reason"),
    [
        ([["a", "uint8", [3], False, 3]], b"12", "does not fit its bytes"),
        ([["a", "uint8", [3], False, 3]], b"1234", "does not fit its bytes"),
        ([["a", "uint8", [1], False, 1]] * 2, b"12", "does not fit its bytes"),
        ([["a", "object", [3], False, 3]], b"123", "not a name, a dtype"),
        ([["a", "uint8", [-3], False, 3]], b"123", "cannot have the shape"),
        ([["a", "uint8", [True], False, 1]], b"1", "cannot have the shape"),
        ([["a", "uint8", [1] * 9, False, 1]], b"1", "cannot have the shape"),
        ([["a", "uint8", [2], False, 3]], b"123", "needs 2 bytes, got 3"),
        ([["a", "uint8", [3], 1, 3]], b"123", "not a name, a dtype"),
        ([["a", "uint8", [3], True, 3]], b"\xff\xff\xff", "damaged"),
        ([["a", "uint8"]], b"123", "damaged"),
        ({"a": 1}, b"", "damaged"),
    ],
)
def test_damaged_messages_are_refused(entries: Any, content: bytes, reason: str):
    with pytest.raises(FedsteinError, match=reason):
        unpack(packed(entries, content))


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"score": np.zeros(3, np.uint8)},
        {PACKED: np.zeros((3, 3), np.uint8)},
        {PACKED: np.zeros(3, np.int8)},
        {PACKED: np.zeros(0, np.uint8)},
        {PACKED: np.full(9, 255, np.uint8)},
    ],
)
def test_messages_that_are_not_packed_are_refused(arrays: dict[str, np.ndarray]):
    with pytest.raises(FedsteinError):
        unpack(arrays)
