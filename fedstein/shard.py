"""One client's rows as fixed shapes: padded to a length shared by shards of about the same size, with their count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Shard(NamedTuple):
    """Padded rows; only the first ``rows`` of them are data."""

    x: Array
    y: Array
    rows: np.int32


class Batch(NamedTuple):
    """Rows with their weights: the log-likelihood of the whole shard is about sum_i weights_i log p(y_i | x_i)."""

    x: Array
    y: Array
    weights: Array


def padded_length(rows: int) -> int:
    """The next m * 2^e with m in 4..7: at most a quarter is padding, and compiled shapes stay few."""
    unit = max(1, 1 << (max(rows, 1).bit_length() - 3)) if rows > 4 else 1
    return -(-rows // unit) * unit


def make_shard(x: np.ndarray, y: np.ndarray) -> Shard:
    """Pad and put on the device; floats take JAX's default precision."""
    floating = jnp.result_type(float)
    labels = np.int32 if np.issubdtype(y.dtype, np.integer) else floating
    return Shard(jnp.asarray(padded(x, floating)), jnp.asarray(padded(y, labels)), np.int32(len(x)))


def padded(rows: np.ndarray, dtype: Any) -> np.ndarray:
    """With its last row repeated: its weight is zero, but a gradient through log(0) would be NaN all the same."""
    found = np.empty((padded_length(len(rows)), *rows.shape[1:]), dtype)
    found[: len(rows)] = rows
    found[len(rows) :] = rows[-1:]
    return found


def whole(shard: Shard) -> Batch:
    """Every row once, padding at weight zero."""
    valid = jnp.arange(shard.x.shape[0]) < shard.rows
    return Batch(shard.x, shard.y, valid.astype(shard.x.dtype))


def shuffled(key: Array, shard: Shard) -> Array:
    """The indices of the shard's rows in random order, padding last."""
    draws = jax.random.uniform(key, (shard.x.shape[0],))
    return jnp.argsort(jnp.where(jnp.arange(draws.shape[0]) < shard.rows, draws, 2.0))


def minibatch(shard: Shard, order: Array, step: Array | int, size: int) -> Batch:
    """Batch number ``step`` of a walk through the shuffled rows, around and around; the likelihood is scaled n/B."""
    index = order[(step * size + jnp.arange(size)) % shard.rows]
    scale = shard.rows.astype(shard.x.dtype) / size
    return Batch(shard.x[index], shard.y[index], jnp.full((size,), scale, shard.x.dtype))


def in_pieces(function: Callable[..., Any], *arrays: Array, size: int = 512) -> Any:
    """The sum over pieces of the rows of ``function(number, *rows)``: memory stays bounded, however long a shard is.

    Padded lengths are m * 2^e, so halving finds pieces of one length; others are padded with rows of weight zero, the
    weights being the last array.
    """
    rows = arrays[0].shape[0]
    length = rows
    while length > size and length % 2 == 0:
        length //= 2
    if length > size:
        length = size
        missing = -rows % size
        *data, weights = arrays
        data = [jnp.pad(a, ((0, missing), *((0, 0),) * (a.ndim - 1)), mode="edge") for a in data]
        arrays = (*data, jnp.pad(weights, (0, missing)))
    if length == arrays[0].shape[0]:
        return function(jnp.uint32(0), *arrays)
    pieces = tuple(array.reshape(-1, length, *array.shape[1:]) for array in arrays)
    numbers = jnp.arange(pieces[0].shape[0], dtype=jnp.uint32)
    shape = jax.eval_shape(lambda number, *rows: function(number, *rows), numbers[0], *(p[0] for p in pieces))
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)

    def add(total: Any, entry: tuple[Array, ...]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, function(*entry)), None

    return jax.lax.scan(add, zero, (numbers, *pieces))[0]
