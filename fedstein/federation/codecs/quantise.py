"""Arrays in few bits: one scale for each group of numbers, and subtractive dither, which is right on average.

    q = floor(L x / s + u),   u uniform on [0, 1),   s = max |x| over the group,   L = 2^(bits - 1) - 1

and x is read as s (q + 1/2 - u) / L. Both ends draw the same u from the seed, so it never travels. The error is uniform
on +- s / 2L whatever x is (Schuchman 1964): zero on average, with half the variance of stochastic rounding, which reads
s q / L. A group is a column of the input layer over all particles and units (in the eigenbasis of the inputs columns
differ by orders of magnitude), and elsewhere one block of one particle.

Three things are written in a form that is small or smooth. Points (particles) travel as differences from what the
receiver holds. Precisions, which are never negative, travel as square roots. The shift eta of a Gaussian site travels
as the site's score at the points, g = eta - Lambda theta, and is put together again as g + Lambda theta.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedstein.errors import FedsteinError
from fedstein.federation.codecs.base import Layout, MessageInfo
from fedstein.inference.sites.base import Arrays

SCALES = ".scales"  # ends the name of the array that holds the scales of another


class Bits(NamedTuple):
    """How many bits a number gets, 4 or 8, by what it is."""

    points: int  # particles, or how far they moved
    roots: int  # square roots of precisions
    others: int  # scores, and the shifts of sites as scores


def encode_quantised(bits: Bits, arrays: Arrays, info: MessageInfo) -> Arrays:
    """Write the arrays that have one number for each parameter of each particle in few bits, the others as they are.

    Args:
        bits: The bits of a number.
        arrays: The arrays of a message.
        info: What both ends know.

    Returns:
        The arrays as they travel: packed numbers under the old name, and their scales.
    """
    found: Arrays = {}
    points = info.reference.get(info.points)
    if info.points in arrays and quantised(arrays[info.points], info):
        moved = arrays[info.points] if points is None else jnp.asarray(arrays[info.points]) - points
        found |= _encode(bits.points, info.points, moved, info)
        points = _decode(bits.points, info.points, found, info) + (0 if points is None else points)
    shift, precision = info.natural
    for name, array in arrays.items():
        if name == info.points and name in found:
            continue
        if not quantised(array, info):
            found[name] = array
        elif name == precision:
            found |= _encode(bits.roots, name, jnp.sqrt(jnp.maximum(jnp.asarray(array), 0)), info)
        elif name == shift and points is not None and precision in arrays:
            found |= _encode(bits.others, name, jnp.asarray(array) - jnp.asarray(arrays[precision]) * points, info)
        else:
            found |= _encode(bits.others, name, jnp.asarray(array), info)
    return found


def decode_quantised(bits: Bits, arrays: Arrays, info: MessageInfo) -> Arrays:
    """Read what ``encode_quantised`` wrote.

    Args:
        bits: The bits of a number.
        arrays: The arrays as they travelled.
        info: What both ends know.

    Returns:
        The arrays that the receiver computes from, in the precision of the run.

    Raises:
        FedsteinError: An array is none that ``encode_quantised`` writes; the text says why.
    """
    found: Arrays = {}
    shift, precision = info.natural
    for name, array in arrays.items():
        if name.endswith(SCALES):
            continue
        if name + SCALES not in arrays:
            found[name] = array
            continue
        if problem := malformed(_bits_of(bits, name, info), np.asarray(array), np.asarray(arrays[name + SCALES]), info):
            raise FedsteinError(f"{name!r} of a quantised message {problem}")
        value = _decode(_bits_of(bits, name, info), name, arrays, info)
        if name == info.points and name in info.reference:
            value = value + info.reference[name]
        found[name] = jnp.square(value) if name == precision else value
    points = found.get(info.points, info.reference.get(info.points))
    if shift + SCALES in arrays and precision + SCALES in arrays and points is not None:
        found[shift] = found[shift] + found[precision] * points
    return found


def malformed(bits: int, packed: np.ndarray, scales: np.ndarray, info: MessageInfo) -> str:
    """Find out why an array cannot have been written by ``encode_quantised``.

    Args:
        bits: The bits of a number.
        packed: The packed numbers.
        scales: Their scales.
        info: What both ends know.

    Returns:
        The reason; empty where there is none. Scales that are not finite are those of a client that diverged, which is
        said where the decoded numbers are looked at.
    """
    width, dtype = sum(block for block, _ in info.layout), "uint8" if bits == 4 else "int8"
    columns = -(-width * bits // 8)
    if packed.ndim != 2 or packed.shape[1] != columns or packed.dtype != dtype:
        return f"is {packed.dtype} {packed.shape}; expected {dtype} with {columns} columns"
    count = sum(inputs or packed.shape[0] for _, inputs in info.layout)
    if scales.shape != (count,) or scales.dtype != np.float32:
        return f"has scales as {scales.dtype} {scales.shape}; expected float32 {(count,)}"
    if (scales < 0).any():
        return "has a negative scale"
    unused = -128 if bits == 8 else 8
    halves = [packed] if bits == 8 else [packed & 15, packed >> 4]
    if any((half == unused).any() for half in halves) or (bits == 4 and width % 2 and (packed[:, -1] >> 4).any()):
        return f"holds a code that no number of {bits} bits has"
    return ""


def quantised(array: Any, info: MessageInfo) -> bool:
    """Whether an array has one number for each parameter of each particle; sums and scalars travel as they are."""
    return array.ndim == 2 and array.shape[1] == sum(width for width, _ in info.layout) and array.shape[1] > 1


def _bits_of(bits: Bits, name: str, info: MessageInfo) -> int:
    """The bits of the numbers of the array with this name."""
    return bits.points if name == info.points else bits.roots if name == info.natural[1] else bits.others


def _encode(bits: int, name: str, array: Any, info: MessageInfo) -> Arrays:
    packed, scales = _quantise(bits, info.layout, _seed(name, info), jnp.asarray(array))
    return {name: packed, name + SCALES: scales}


def _decode(bits: int, name: str, arrays: Arrays, info: MessageInfo) -> Any:
    packed, scales = jnp.asarray(arrays[name]), jnp.asarray(arrays[name + SCALES])
    return _restore(bits, info.layout, jnp.dtype(info.precision), _seed(name, info), packed, scales)


def _seed(name: str, info: MessageInfo) -> np.ndarray:
    """What the dither of an array is drawn from; both ends know it."""
    return np.array([info.seed, zlib.crc32(f"{info.kind}/{name}".encode()), info.round, info.client + 1], np.uint32)


@partial(jax.jit, static_argnums=(0, 1))
def _quantise(bits: int, layout: Layout, seed: np.ndarray, array: jax.Array) -> tuple[jax.Array, jax.Array]:
    dither = _dither(seed, array.shape)
    levels = 2 ** (bits - 1) - 1
    scales = _scales(layout, array.astype(jnp.float32))
    wide = _spread(layout, scales, array.shape[0])
    ratio = array.astype(jnp.float32) * jnp.where(wide > 0, levels / jnp.where(wide > 0, wide, 1.0), 0.0)
    numbers = jnp.clip(jnp.floor(ratio + dither), -levels, levels).astype(jnp.int8)
    return (_pack(numbers) if bits == 4 else numbers), scales


@partial(jax.jit, static_argnums=(0, 1, 2))
def _restore(
    bits: int, layout: Layout, dtype: Any, seed: np.ndarray, packed: jax.Array, scales: jax.Array
) -> jax.Array:
    width = sum(block for block, _ in layout)
    numbers = (_unpack(packed, width) if bits == 4 else packed).astype(jnp.float32)
    wide = _spread(layout, scales, packed.shape[0])
    middle = numbers + (0.5 - _dither(seed, numbers.shape))
    return (middle * (wide / (2 ** (bits - 1) - 1))).astype(dtype)


def _dither(seed: Any, shape: tuple[int, ...]) -> jax.Array:
    """Numbers of eight bits, uniform on (0, 1), the same at both ends."""
    key = jax.random.key(seed[0])
    for word in (1, 2, 3):
        key = jax.random.fold_in(key, seed[word])
    return (jax.random.bits(key, shape, jnp.uint8).astype(jnp.float32) + 0.5) / 256


def _scales(layout: Layout, array: jax.Array) -> jax.Array:
    """The largest absolute value of every group, all groups in one vector."""
    found, start = [], 0
    for width, columns in layout:
        block = jnp.abs(array[:, start : start + width])
        found.append(jnp.max(block.reshape(-1, columns), axis=0) if columns else jnp.max(block, axis=1))
        start += width
    return jnp.concatenate(found)


def _spread(layout: Layout, scales: jax.Array, particles: int) -> jax.Array:
    """Every number's scale."""
    found, start = [], 0
    for width, columns in layout:
        count = columns or particles
        group = scales[start : start + count]
        wide = jnp.tile(group, width // columns)[None, :] if columns else group[:, None]
        found.append(jnp.broadcast_to(wide, (particles, width)))
        start += count
    return jnp.concatenate(found, axis=1)


def _pack(numbers: jax.Array) -> jax.Array:
    """Two numbers of four bits to a byte."""
    even = jnp.pad(numbers, ((0, 0), (0, numbers.shape[1] % 2))).astype(jnp.uint8) & 15
    return even[:, 0::2] | (even[:, 1::2] << 4)


def _unpack(packed: jax.Array, width: int) -> jax.Array:
    """The numbers of ``_pack``."""
    both = jnp.stack([packed & 15, packed >> 4], axis=2).reshape(packed.shape[0], -1)[:, :width]
    return ((both ^ 8).astype(jnp.int8) - 8).astype(jnp.int8)
