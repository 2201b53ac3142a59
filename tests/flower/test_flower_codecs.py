"""Ten thousand malformed replies in every codec: the server accepts none of them, and says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedstein.federation.channel import KINDS, Wire
from fedstein.federation.codecs import CODECS
from fedstein.federation.packing import PACKED, largest, pack
from fedstein.flower.messages import DTYPES, InvalidMessage, check_arrays, shapes_of
from fedstein.flower.server.forms import Form, undecodable

LAYOUT = ((12, 4), (3, 0), (2, 0))
NATURAL = ("eta", "precision")
MESSAGES = 2500  # of each codec that rounds, and as many of plain and bfloat16 together
PACKED_MESSAGES = 600  # the codecs inside are meddled with above
Arrays = dict[str, np.ndarray]
Random = np.random.Generator


def update(wire: Wire) -> Arrays:
    numbers = np.random.default_rng(0).normal(size=(3, 4, 17)).astype(np.float32)
    arrays = {"particles": numbers[0], "eta": numbers[1], "precision": numbers[2] ** 2}
    return {name: np.asarray(array) for name, array in wire.encode("update", 1, 0, arrays).items()}


def without_one(arrays: Arrays, random: Random) -> Arrays:
    gone = random.choice(sorted(arrays))
    return {name: array for name, array in arrays.items() if name != gone}


def one_more(arrays: Arrays, random: Random) -> Arrays:
    return {**arrays, random.choice(["", "eta ", "eta.scales.scales", "setup/u", "score"]): random.normal(size=3)}


def other_type(arrays: Arrays, random: Random) -> Arrays:
    name = random.choice(sorted(arrays))
    others = [dtype for dtype in DTYPES if dtype != arrays[name].dtype.name]
    return {**arrays, name: arrays[name].astype(random.choice(others))}


def other_shape(arrays: Arrays, random: Random) -> Arrays:
    name = random.choice(sorted(arrays))
    array = arrays[name]
    shapes = [array.T if array.ndim > 1 else array[:, None], array[:-1], array[:0], np.concatenate([array, array])]
    shapes += [array.ravel()] if array.ndim > 1 else [array[None]]
    return {**arrays, name: shapes[random.integers(len(shapes))]}


def not_finite(arrays: Arrays, random: Random) -> Arrays:
    name = random.choice([name for name in sorted(arrays) if arrays[name].dtype.kind in "fu" and wide(arrays[name])])
    array = arrays[name].copy()
    bad = 0x7FC0 if array.dtype == np.uint16 else random.choice([np.nan, np.inf, -np.inf])  # bfloat16 as its bits
    array.flat[random.integers(array.size)] = bad
    return {**arrays, name: array}


def wide(array: np.ndarray) -> bool:
    return array.dtype.itemsize > 1


def negative_scale(arrays: Arrays, random: Random) -> Arrays:
    name = random.choice([name for name in sorted(arrays) if name.endswith(".scales")])
    array = arrays[name].copy()
    array.flat[random.integers(array.size)] = -1e-3
    return {**arrays, name: array}


def unused_code(arrays: Arrays, random: Random) -> Arrays:
    name = random.choice([name for name in sorted(arrays) if "." not in name])
    array = arrays[name].copy()
    at = random.integers(array.size)
    array.flat[at] = -128 if array.dtype == np.int8 else random.choice([0x08, 0x80, 0x88])
    return {**arrays, name: array}


def padding(arrays: Arrays, random: Random) -> Arrays:
    name = random.choice([name for name in sorted(arrays) if arrays[name].dtype == np.uint8])
    array = arrays[name].copy()
    array[random.integers(len(array)), -1] |= np.uint8(random.integers(1, 8) << 4)
    return {**arrays, name: array}


ANY: tuple[Callable[[Arrays, Random], Arrays], ...] = (without_one, one_more, other_type, other_shape, not_finite)
WAYS = {
    "plain": (ANY, MESSAGES // 2),
    "bfloat16": (ANY, MESSAGES // 2),
    "int8": ((*ANY, negative_scale, unused_code), MESSAGES),
    "mixed": ((*ANY, negative_scale, unused_code, padding), MESSAGES),
    "int4": ((*ANY, negative_scale, unused_code, padding), MESSAGES),
}


def test_every_codec_is_meddled_with() -> None:
    assert set(WAYS) == set(CODECS)
    assert sum(count for _, count in WAYS.values()) == 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", list(WAYS))
def test_no_malformed_reply_is_accepted(name: str) -> None:
    wire = Wire(dict.fromkeys(KINDS, CODECS[name]), 0, "float32", LAYOUT, NATURAL)
    sound = update(wire)
    decoded = {key: np.asarray(array) for key, array in wire.decode("update", 1, 0, dict(sound)).items()}
    form = Form(shapes_of(sound), shapes_of(sound), shapes_of(decoded))
    check = partial(undecodable, wire, "update", 1, form, 0)
    check_arrays(sound, form.on_wire, check)
    random, (ways, count) = np.random.default_rng(7), WAYS[name]
    accepted: list[Any] = []
    for number in range(count):
        way = ways[number % len(ways)]
        changed = way(sound, random)
        try:
            check_arrays(changed, form.on_wire, check)
            accepted.append((number, way.__name__))
        except InvalidMessage:
            pass
    assert not accepted


def flipped(arrays: Arrays, random: Random) -> Arrays:
    whole = arrays[PACKED].copy()
    whole[random.integers(whole.size)] ^= np.uint8(1 << random.integers(8))
    return {PACKED: whole}


def cut_short(arrays: Arrays, random: Random) -> Arrays:
    return {PACKED: arrays[PACKED][: random.integers(arrays[PACKED].size)]}


def lengthened(arrays: Arrays, random: Random) -> Arrays:
    return {PACKED: np.concatenate([arrays[PACKED], random.integers(0, 256, 3).astype(np.uint8)])}


@pytest.mark.slow
def test_of_malformed_packed_replies_only_other_numbers_are_accepted() -> None:
    """A flipped bit may give another number of the same form, as it may without packing; nothing else gets through."""
    wire = Wire(dict.fromkeys(KINDS, CODECS["int4"]), 0, "float32", LAYOUT, NATURAL, "deflate")
    inner = Wire(dict.fromkeys(KINDS, CODECS["int4"]), 0, "float32", LAYOUT, NATURAL)
    sound = update(wire)
    encoded = {key: np.asarray(array) for key, array in wire.unpack(sound).items()}
    decoded = {key: np.asarray(array) for key, array in wire.decode("update", 1, 0, dict(sound)).items()}
    form = Form({PACKED: ((-largest(encoded),), "uint8")}, shapes_of(encoded), shapes_of(decoded))
    check = partial(undecodable, wire, "update", 1, form, 0)
    check_arrays(sound, form.on_wire, check)
    random = np.random.default_rng(3)
    ways, inside = (*ANY[:4], flipped, cut_short, lengthened), WAYS["int4"][0]
    for number in range(PACKED_MESSAGES):
        way = (*ways, *inside)[number % (len(ways) + len(inside))]
        meddled = way(sound, random) if way in ways[4:] else pack(way(encoded, random))
        try:
            check_arrays(meddled, form.on_wire, check)
        except InvalidMessage:
            continue
        assert way is flipped, way.__name__
        check_arrays(wire.unpack(meddled), form.encoded, partial(undecodable, inner, "update", 1, form, 0))
