"""Arrays in few bits: one scale for each group of numbers, and subtractive dither, which is right on average.

    q = floor(L x / s + u),   u uniform on [0, 1),   s >= |x| for the whole group,   L = 2^(bits - 1) - 1

and x is read as s (q + 1/2 - u) / L. Both ends draw the same u from the seed, so it is never sent. The error is uniform
on +- s / 2L whatever x is (Schuchman 1964): zero on average, with half the variance of stochastic rounding, which reads
s q / L.

In the input layer s = r c, with a factor r for each unit of each particle and a factor c for each column: gradients and
curvatures of that layer are nearly products of the two, and in the eigenbasis of the inputs columns differ by orders of
magnitude. Elsewhere a group is ``CHUNK`` numbers of one particle. Factors of units and chunks are powers of the square
root of two, a byte each; factors of columns are float32.

Three kinds of arrays are sent in a form that has smaller or less varied numbers. Points (particles) are sent as
differences from the points that the receiver has. Precisions, which are never negative, are sent as square roots. The
shift eta of a Gaussian site is sent as the site's score at the points, g = eta - Lambda theta, and is computed again as
g + Lambda theta.
"""

from __future__ import annotations

import math
import zlib
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedstein.errors import FedsteinError
from fedstein.federation.codecs.base import Layout, MessageInfo
from fedstein.inference.sites.base import Arrays

SCALES = ".scales"  # suffix of the array with the factors of another array's columns
EXPONENTS = ".exponents"  # suffix of the array with the factors of its units and chunks
CHUNK = 32  # numbers that share a factor outside of the input layer
ZERO, NOT_FINITE = -128, 127  # exponents with a special meaning
FACTORS = np.exp2(np.arange(-128, 128) / 2).astype(np.float32)  # the factor of every exponent
FACTORS[0], FACTORS[-1] = 0.0, np.nan


class Bits(NamedTuple):
    """How many bits a number gets, 4 or 8, for each kind of number."""

    points: int  # particles, or how far they moved
    roots: int  # square roots of precisions
    others: int  # scores, and the shifts of sites as scores


def encode_quantised(bits: Bits, arrays: Arrays, info: MessageInfo) -> Arrays:
    """Encode the arrays that have one number for each parameter of each particle in few bits, and no others.

    Args:
        bits: The bits of a number.
        arrays: The arrays of a message.
        info: The facts that both ends know.

    Returns:
        The encoded arrays: packed numbers under the old name, and the factors of their scales.
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
        arrays: The encoded arrays.
        info: The facts that both ends know.

    Returns:
        The decoded arrays, in the precision of the run.

    Raises:
        FedsteinError: An array was not written by ``encode_quantised``; the text says why.
    """
    found: Arrays = {}
    shift, precision = info.natural
    for name, array in arrays.items():
        if name.endswith((SCALES, EXPONENTS)):
            continue
        if name + EXPONENTS not in arrays:
            found[name] = array
            continue
        if problem := malformed(_bits_of(bits, name, info), name, arrays, info):
            raise FedsteinError(f"{name!r} of a quantised message {problem}")
        value = _decode(_bits_of(bits, name, info), name, arrays, info)
        if name == info.points and name in info.reference:
            value = value + info.reference[name]
        found[name] = jnp.square(value) if name == precision else value
    points = found.get(info.points, info.reference.get(info.points))
    if shift + EXPONENTS in arrays and precision + EXPONENTS in arrays and points is not None:
        found[shift] = found[shift] + found[precision] * points
    return found


def malformed(bits: int, name: str, arrays: Arrays, info: MessageInfo) -> str:
    """Find out why an array cannot have been written by ``encode_quantised``.

    Args:
        bits: The bits of a number.
        name: The name of the array.
        arrays: The message.
        info: The facts that both ends know.

    Returns:
        The reason; empty if there is none. Factors that are not finite come from a client that diverged; the
        check of the decoded numbers reports that.
    """
    packed, exponents = np.asarray(arrays[name]), np.asarray(arrays[name + EXPONENTS])
    width, dtype = sum(block for block, _ in info.layout), "uint8" if bits == 4 else "int8"
    columns = -(-width * bits // 8)
    if packed.ndim != 2 or packed.shape[1] != columns or packed.dtype != dtype:
        return f"is {packed.dtype} {packed.shape}; expected {dtype} with {columns} columns"
    expected = (len(packed), sum(_factors(block, inputs) for block, inputs in info.layout))
    if exponents.shape != expected or exponents.dtype != np.int8:
        return f"has exponents as {exponents.dtype} {exponents.shape}; expected int8 {expected}"
    count = sum(inputs for _, inputs in info.layout)
    scales = np.asarray(arrays.get(name + SCALES, np.zeros(0, np.float32)))
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
    """Whether an array has one number for each parameter of each particle. Other arrays are sent unencoded."""
    return array.ndim == 2 and array.shape[1] == sum(width for width, _ in info.layout) and array.shape[1] > 1


def _bits_of(bits: Bits, name: str, info: MessageInfo) -> int:
    """The bits of the numbers of the array with this name."""
    return bits.points if name == info.points else bits.roots if name == info.natural[1] else bits.others


def _encode(bits: int, name: str, array: Any, info: MessageInfo) -> Arrays:
    packed, scales, exponents = _quantise(bits, info.layout, _seed(name, info), jnp.asarray(array))
    found = {name: packed, name + EXPONENTS: exponents}
    return {**found, name + SCALES: scales} if scales.size else found


def _decode(bits: int, name: str, arrays: Arrays, info: MessageInfo) -> Any:
    packed, exponents = jnp.asarray(arrays[name]), jnp.asarray(arrays[name + EXPONENTS])
    scales = jnp.asarray(arrays.get(name + SCALES, np.zeros(0, np.float32)))
    return _restore(bits, info.layout, jnp.dtype(info.precision), _seed(name, info), packed, scales, exponents)


def _seed(name: str, info: MessageInfo) -> np.ndarray:
    """Return the seed of an array's dither, which both ends know."""
    return np.array([info.seed, zlib.crc32(f"{info.kind}/{name}".encode()), info.round, info.client + 1], np.uint32)


@partial(jax.jit, static_argnums=(0, 1))
def _quantise(bits: int, layout: Layout, seed: np.ndarray, array: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    levels, numbers = 2 ** (bits - 1) - 1, array.astype(jnp.float32)
    scales, exponents = _factorise(layout, numbers)
    wide = _spread(layout, scales, exponents)
    ratio = jnp.where(wide == 0, 0.0, numbers / wide) * levels
    found = jnp.clip(jnp.floor(ratio + _dither(seed, array.shape)), -levels, levels).astype(jnp.int8)
    return (_pack(found) if bits == 4 else found), scales, exponents


@partial(jax.jit, static_argnums=(0, 1, 2))
def _restore(
    bits: int,
    layout: Layout,
    dtype: Any,
    seed: np.ndarray,
    packed: jax.Array,
    scales: jax.Array,
    exponents: jax.Array,
) -> jax.Array:
    width = sum(block for block, _ in layout)
    numbers = (_unpack(packed, width) if bits == 4 else packed).astype(jnp.float32)
    middle = numbers + (0.5 - _dither(seed, numbers.shape))
    return (middle * (_spread(layout, scales, exponents) / (2 ** (bits - 1) - 1))).astype(dtype)


def _dither(seed: Any, shape: tuple[int, ...]) -> jax.Array:
    """Draw numbers of eight bits, uniform on (0, 1), the same at both ends.

    They are a hash of their index (Wellons' lowbias32), keyed by the seed: ten times as fast as JAX's generator, whose
    numbers would take most of a codec's time.
    """
    key = jax.random.key(seed[0])
    for word in (1, 2, 3):
        key = jax.random.fold_in(key, seed[word])
    first, second = jax.random.key_data(key)
    count = math.prod(shape)
    mixed = jnp.arange(-(-count // 4), dtype=jnp.uint32) + first
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
    mixed = (mixed ^ (mixed >> 16)) + second
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
    numbers = jax.lax.bitcast_convert_type(mixed ^ (mixed >> 16), jnp.uint8).reshape(-1)[:count].reshape(shape)
    return (numbers.astype(jnp.float32) + 0.5) / 256


def _factors(width: int, columns: int) -> int:
    """How many factors a particle's block has: one for each unit in the input layer, one for each chunk elsewhere."""
    return width // columns if columns else -(-width // CHUNK)


def _factorise(layout: Layout, array: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The factors of the columns, and the exponents of the factors of units and chunks, block after block."""
    scales, exponents, start, particles = [jnp.zeros(0, jnp.float32)], [], 0, array.shape[0]
    for width, columns in layout:
        block = jnp.abs(array[:, start : start + width])
        start += width
        if not columns:
            chunks = jnp.pad(block, ((0, 0), (0, -width % CHUNK))).reshape(particles, -1, CHUNK)
            exponents.append(_exponents(jnp.max(chunks, axis=2), jnp.ceil))
            continue
        units = block.reshape(particles, -1, columns)
        even = _over(units, jnp.max(units, axis=(0, 1)))
        exponents.append(_exponents(jnp.sqrt(jnp.mean(jnp.square(even), axis=2)), jnp.round))
        scales.append(jnp.max(_over(units, _powers(exponents[-1])[:, :, None]), axis=(0, 1)))
    return jnp.concatenate(scales), jnp.concatenate(exponents, axis=1)


def _over(numbers: jax.Array, factor: jax.Array) -> jax.Array:
    return jnp.where(factor == 0, 0.0, numbers / factor)


def _exponents(factors: jax.Array, rounding: Any) -> jax.Array:
    """The exponents of the powers of the square root of two that are nearest to factors, or not below them."""
    found = jnp.clip(rounding(2 * jnp.log2(factors)), ZERO + 1, NOT_FINITE)
    found = jnp.where(jnp.isfinite(factors), jnp.where(factors == 0, ZERO, found), NOT_FINITE)
    return found.astype(jnp.int8)


def _powers(exponents: jax.Array) -> jax.Array:
    return jnp.asarray(FACTORS)[exponents.astype(jnp.int32) - ZERO]


def _spread(layout: Layout, scales: jax.Array, exponents: jax.Array) -> jax.Array:
    """Every number's scale."""
    found, column, factor, powers = [], 0, 0, _powers(exponents)
    for width, columns in layout:
        count = _factors(width, columns)
        own = powers[:, factor : factor + count, None]
        factor += count
        wide = own * scales[column : column + columns] if columns else jnp.repeat(own, CHUNK, axis=2)
        column += columns
        found.append(wide.reshape(exponents.shape[0], -1)[:, :width])
    return jnp.concatenate(found, axis=1)


def _pack(numbers: jax.Array) -> jax.Array:
    """Pack two numbers of four bits into a byte."""
    even = jnp.pad(numbers, ((0, 0), (0, numbers.shape[1] % 2))).astype(jnp.uint8) & 15
    return even[:, 0::2] | (even[:, 1::2] << 4)


def _unpack(packed: jax.Array, width: int) -> jax.Array:
    """Undo ``_pack``."""
    both = jnp.stack([packed & 15, packed >> 4], axis=2).reshape(packed.shape[0], -1)[:, :width]
    return ((both ^ 8).astype(jnp.int8) - 8).astype(jnp.int8)
