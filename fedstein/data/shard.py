"""One client's rows as arrays of few different shapes: padded to a length that shards of a similar size share."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Shard(NamedTuple):
    """Padded rows. Only the first ``rows`` rows are data."""

    x: Array
    y: Array
    rows: np.int32


class Batch(NamedTuple):
    """Rows with weights. The log-likelihood of the whole shard is approximately sum_i weights_i log p(y_i | x_i)."""

    x: Array
    y: Array
    weights: Array


def padded_length(rows: int) -> int:
    """Return the next m * 2^e with m in 4..7. At most a quarter of a shard is padding, and few shapes are compiled.

    Args:
        rows: The number of rows of a client.
    """
    unit = max(1, 1 << (max(rows, 1).bit_length() - 3)) if rows > 4 else 1
    return -(-rows // unit) * unit


def make_shard(x: np.ndarray, y: np.ndarray) -> Shard:
    """Pad a client's rows and put them on the device, in JAX's default precision.

    Args:
        x: The inputs, n x f.
        y: The labels (integers) or targets (floats), n.
    """
    floating = jnp.result_type(float)
    labels = np.int32 if np.issubdtype(y.dtype, np.integer) else floating
    return Shard(jnp.asarray(padded(x, floating)), jnp.asarray(padded(y, labels)), np.int32(len(x)))


def padded(rows: np.ndarray, dtype: Any) -> np.ndarray:
    """Pad rows with copies of the last row.

    The copies have weight zero. They are real rows because a gradient through log(0) would be NaN even at weight zero.
    """
    found = np.empty((padded_length(len(rows)), *rows.shape[1:]), dtype)
    found[: len(rows)] = rows
    found[len(rows) :] = rows[-1:]
    return found


def whole(shard: Shard) -> Batch:
    """Return every row of a shard once, with weight zero for the padding."""
    valid = jnp.arange(shard.x.shape[0]) < shard.rows
    return Batch(shard.x, shard.y, valid.astype(shard.x.dtype))


def shuffled(key: Array, shard: Shard) -> Array:
    """Return the indices of the rows of a shard in random order, with the padding last.

    Args:
        key: The key of the random order.
        shard: The shard.
    """
    draws = jax.random.uniform(key, (shard.x.shape[0],))
    return jnp.argsort(jnp.where(jnp.arange(draws.shape[0]) < shard.rows, draws, 2.0))


def minibatch(shard: Shard, order: Array, step: Array | int, size: int) -> Batch:
    """Return one minibatch of a cyclic pass through the shuffled rows.

    Args:
        shard: The shard, with n rows.
        order: The result of ``shuffled``.
        step: The index of the minibatch.
        size: The number B of rows of a minibatch.

    Returns:
        B rows with the weight n / B each.
    """
    index = order[(step * size + jnp.arange(size)) % shard.rows]
    scale = shard.rows.astype(shard.x.dtype) / size
    return Batch(shard.x[index], shard.y[index], jnp.full((size,), scale, shard.x.dtype))
