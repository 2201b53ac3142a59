"""Sums over the rows of a client, computed chunk by chunk to bound the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


def sum_over_chunks(function: Callable[..., Any], *arrays: Array, size: int = 512) -> Any:
    """Sum ``function`` over chunks of the rows, so that memory stays bounded for any number of rows.

    The lengths of padded shards are m * 2^e. Halving such a length gives chunks of equal length. Any other length is
    padded with rows of weight zero.

    Args:
        function: ``function(chunk_index, *rows)`` returns a tree of arrays. It must be additive over rows.
        *arrays: Arrays with the rows on the first axis. The last one holds the weights of the rows.
        size: The largest number of rows in one chunk.

    Returns:
        The sum of the trees that ``function`` returned.
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
    chunks = tuple(array.reshape(-1, length, *array.shape[1:]) for array in arrays)
    indices = jnp.arange(chunks[0].shape[0], dtype=jnp.uint32)
    shape = jax.eval_shape(lambda index, *rows: function(index, *rows), indices[0], *(p[0] for p in chunks))
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)

    def add(total: Any, entry: tuple[Array, ...]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, function(*entry)), None

    return jax.lax.scan(add, zero, (indices, *chunks))[0]
