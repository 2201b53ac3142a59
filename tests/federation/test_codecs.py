"""Codecs: what arrives is what was sent, as well as the bits allow, and right on average."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.federation.channel import KINDS, Channel, ChannelSettings, Wire, size_of
from fedstein.federation.codecs import CODECS, MessageInfo
from fedstein.federation.codecs.quantise import CHUNK, EXPONENTS, SCALES, _dither, _pack, _unpack

LAYOUT = ((12, 4), (3, 0), (2, 0))  # three units with four inputs, their biases, an odd rest
DIM = sum(width for width, _ in LAYOUT)
NATURAL = ("eta", "precision")


def info(**more: Any) -> MessageInfo:
    return MessageInfo("update", 3, 2, 1, "float32", LAYOUT, NATURAL)._replace(**more)


def numbers(seed: int = 0, rows: int = 6) -> np.ndarray:
    """Columns of the input layer that differ by orders of magnitude, as in an eigenbasis."""
    found = np.random.default_rng(seed).normal(size=(rows, DIM)).astype(np.float32)
    found[:, :12] *= np.tile([100.0, 1.0, 0.01, 0.0], 3).astype(np.float32)
    return found


def through(name: str, arrays: dict[str, Any], **more: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The arrays on the wire, and as they arrive."""
    sent = CODECS[name].encode(arrays, info(**more))
    return sent, {key: np.asarray(array) for key, array in CODECS[name].decode(sent, info(**more)).items()}


@pytest.mark.parametrize(("name", "levels", "share"), [("int8", 127, 4.0), ("mixed", 127, 4.0), ("int4", 7, 8.0)])
def test_every_number_is_within_half_a_level_of_its_group(name: str, levels: int, share: float):
    array = numbers()
    _, found = through(name, {"score": array})
    rest = np.abs(array[:, 12:])
    chunk = np.stack([rest[:, :3].max(axis=1)] * 3 + [rest[:, 3:].max(axis=1)] * 2, axis=1)
    assert (np.abs(found["score"] - array)[:, 12:] <= np.sqrt(2) * chunk / levels / 2 * 1.001).all()
    error = np.abs(found["score"] - array)[:, :12].reshape(6, 3, 4)
    columns = np.abs(array[:, :12]).reshape(6, 3, 4).max(axis=(0, 1))
    assert (error <= 3 * columns / levels / 2).all()  # a unit's factor can be above its numbers in one column
    assert (error[..., 3] == 0).all()
    assert found["score"].dtype == np.float32
    big = np.random.default_rng(1).normal(size=(20, 4001)).astype(np.float32)
    assert size_of(CODECS[name].encode({"score": big}, info(layout=((4001, 0),)))) < big.nbytes / share * (
        1 + share / 4 / CHUNK + 0.01
    )


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_rounding_is_right_on_average_and_the_same_for_the_same_message(name: str):
    array = numbers()
    found = [through(name, {"score": array}, round=number)[1]["score"] for number in range(200)]
    assert not np.array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], through(name, {"score": array}, round=0)[1]["score"])
    error = np.mean(found, axis=0) - array
    spread = np.std(found, axis=0) / np.sqrt(len(found))
    level = np.abs(array).max(axis=0)[None, :] / (127 if name == "int8" else 7)
    level[:, 12:] = np.abs(array[:, 12:]).max() / (127 if name == "int8" else 7)
    assert (np.abs(error) <= 4.5 * spread + level / 128).all()  # eight bits of dither are not a real number
    # The error has the spread of one that is uniform on half a level to both sides, the same for every number.
    chunk = np.exp2(np.ceil(2 * np.log2(np.abs(array[:, 12:15]).max(axis=1))) / 2) / (127 if name == "int8" else 7)
    np.testing.assert_allclose(np.std(found, axis=0)[:, 12:15], np.tile(chunk[:, None] / np.sqrt(12), 3), rtol=0.2)


def test_the_dither_is_uniform_and_its_bytes_know_nothing_of_each_other():
    found = np.asarray(_dither(np.array([1, 2, 3, 4], np.uint32), (40, 1001)))
    counts = np.bincount((found * 256).astype(int).ravel(), minlength=256)
    assert (np.abs(counts - found.size / 256) < 5 * np.sqrt(found.size / 256)).all()
    flat = found.ravel() - 0.5
    for lag in (1, 2, 3, 4, 1001):
        assert abs(np.mean(flat[:-lag] * flat[lag:]) * 12) < 5 / np.sqrt(flat.size)
    other = np.asarray(_dither(np.array([1, 2, 3, 5], np.uint32), (40, 1001))).ravel() - 0.5
    assert abs(np.mean(flat * other) * 12) < 5 / np.sqrt(flat.size)


def test_gradients_that_are_products_of_units_and_columns_have_small_errors():
    """A factor for each unit and each column: noise is small for every unit, however much units differ."""
    random = np.random.default_rng(4)
    units, columns = 10.0 ** random.uniform(-3, 1, (6, 3, 1)), 10.0 ** random.uniform(-3, 1, 4)
    array = np.zeros((6, DIM), np.float32)
    array[:, :12] = (units * columns * random.uniform(0.5, 1, (6, 3, 4))).reshape(6, 12)
    _, found = through("int4", {"score": array})
    assert (np.abs(found["score"] - array)[:, :12] < 0.3 * np.abs(array[:, :12])).all()


def test_mixed_gives_scores_eight_bits_and_moves_and_precisions_four():
    arrays = {"particles": numbers(1), "eta": numbers(2), "precision": np.abs(numbers(3))}
    sent, _ = through("mixed", arrays)
    eights, fours = (CODECS[name].encode(arrays, info()) for name in ("int8", "int4"))
    for name, like in (("particles", fours), ("precision", fours), ("eta", eights)):
        assert (sent[name].shape, sent[name].dtype) == (like[name].shape, like[name].dtype)


@pytest.mark.parametrize("name", ["int8", "mixed", "int4"])
def test_points_travel_as_differences_and_a_site_keeps_its_score_at_them(name: str):
    before, move = numbers(1), 1e-3 * numbers(2)
    precision, after = np.abs(numbers(3)), before + move
    eta = numbers(4) + precision * after
    arrays = {"particles": after, "eta": eta, "precision": precision}
    _, found = through(name, arrays, reference={"particles": jnp.asarray(before)})
    assert np.abs(found["particles"] - after).max() < 0.2 * np.abs(move).max()
    assert (found["precision"] >= 0).all()
    score = found["eta"] - found["precision"] * found["particles"]
    expected = eta - precision * found["particles"]
    level = np.abs(expected).max(axis=0)[None, :] * (1 / 127 if name == "int8" else 1 / 7)
    assert (np.abs(score - expected) <= level.max() * 1.01 + 1e-3).all()
    # Without what the receiver holds, the same bytes mean the move alone.
    sent = CODECS[name].encode(arrays, info(reference={"particles": jnp.asarray(before)}))
    alone = CODECS[name].decode(sent, info())
    np.testing.assert_allclose(np.asarray(alone["particles"]) + before, found["particles"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", list(CODECS))
def test_other_arrays_travel_as_they_are_and_zeros_stay_zeros(name: str):
    arrays = {"rows": np.int32(7), "value": np.float32(0.5), "score": np.zeros((6, DIM), np.float32)}
    _, found = through(name, arrays)
    assert int(found["rows"]) == 7
    assert float(found["value"]) == 0.5
    assert not found["score"].any()


@pytest.mark.parametrize("name", list(CODECS))
def test_shapes_on_the_wire_depend_on_shapes_alone(name: str):
    first, other = (
        {key: (array.shape, array.dtype) for key, array in CODECS[name].encode({"score": array}, info()).items()}
        for array in (numbers(), np.zeros((6, DIM), np.float32))
    )
    assert first == other


def test_two_numbers_of_four_bits_share_a_byte():
    array = jnp.asarray(np.arange(-7, 8, dtype=np.int8).reshape(1, 15))
    packed = _pack(array)
    assert packed.shape == (1, 8)
    np.testing.assert_array_equal(np.asarray(_unpack(packed, 15)), np.asarray(array))


def test_numbers_that_are_not_finite_do_not_become_finite():
    """The server must see that a client has diverged, whatever the codec."""
    array = numbers()
    array[2, 3], array[4, 13] = np.nan, np.inf
    for name in CODECS:
        _, found = through(name, {"score": array})
        assert not np.isfinite(found["score"]).all(), name


def test_every_kind_of_message_has_its_codec():
    settings = ChannelSettings(codec="int4", update="int8", report="plain")
    assert [settings.codec_of(kind) for kind in KINDS] == ["int4", "plain", "int4", "int8"]
    codecs = {kind: CODECS[settings.codec_of(kind)] for kind in KINDS}
    channel = Channel(Wire(codecs, 0, "float32", LAYOUT, NATURAL))
    channel.begin(1)
    particles = jnp.asarray(numbers())
    broadcast = channel.broadcast({"particles": particles}, [0, 1])
    assert broadcast.wire["particles"].dtype == np.uint8
    assert broadcast.wire["particles" + SCALES].dtype == np.float32
    assert channel.down == 2 * size_of(broadcast.wire)
    assignment, cached = channel.assignment(0, {"particles": particles, "eta": particles, "precision": particles**2})
    ends = ("", SCALES, EXPONENTS)
    assert set(assignment) == {name + end for name in ("eta", "precision") for end in ends}
    assert cached is broadcast.wire


def test_rounding_what_a_client_starts_from_stays_out_of_the_servers_points():
    """A client that does not move leaves the server's particles where they are, however few bits they travel in."""
    channel = Channel(Wire(dict.fromkeys(KINDS, CODECS["int4"]), 0, "float32", LAYOUT, NATURAL))
    channel.begin(1)
    particles = jnp.asarray(numbers())
    received = channel.broadcast({"particles": particles}, [0]).received["particles"]
    assert np.abs(np.asarray(received - particles)).max() > 0.1
    channel.assignment(0, {"particles": particles, "eta": particles, "precision": particles**2})
    move = 1e-3 * numbers(5)
    reference = {"particles": received}
    sent = channel.wire.encode("update", 1, 0, {"particles": received + move}, reference)
    update = channel.receive("update", 0, sent)
    moved = channel.without_rounding(0, update)
    level = np.abs(move).max(axis=0).max() / 7
    assert np.abs(np.asarray(moved["particles"] - particles) - move).max() < 1.1 * level
    np.testing.assert_array_equal(channel.as_decoded({"particles": particles, "eta": 1})["particles"], received)
    assert channel.without_rounding(1, update) is update, "nothing was assigned to this client"


def test_an_exact_codec_leaves_updates_as_they_are():
    channel = Channel(Wire(dict.fromkeys(KINDS, CODECS["plain"]), 0, "float32", LAYOUT, NATURAL))
    channel.begin(1)
    particles = jnp.asarray(numbers())
    channel.broadcast({"particles": particles}, [0])
    channel.assignment(0, {"particles": particles})
    update = channel.receive("update", 0, {"particles": particles + 1})
    assert channel.without_rounding(0, update) is update
