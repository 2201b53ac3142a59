"""The paper's bandwidth h = med^2 / log N, med the median of the N(N-1)/2 pairwise distances."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array


def median_bandwidth(squared: Array) -> Array:
    """Work out h = med^2 / log N; an even number of pairs takes the mean of the two middle distances.

    The result is a constant to autodiff: SVGD's kernel gradient holds h fixed. It is kept above zero, so that
    particles that coincide give a kernel of ones instead of a division by zero.

    Args:
        squared: The squared distances of the particles among themselves, N x N.

    Returns:
        The bandwidth h, a scalar.

    Raises:
        ValueError: There are fewer than two particles.
    """
    n = squared.shape[0]
    if n < 2:
        raise ValueError(f"the median bandwidth needs at least 2 particles, got {n}: pass a bandwidth")
    squared = jax.lax.stop_gradient(squared)
    lower, upper = middle_off_diagonal(squared)
    median = 0.5 * (jnp.sqrt(lower) + jnp.sqrt(upper))
    return jnp.maximum(median * median / math.log(n), float(jnp.finfo(squared.dtype).tiny) ** 0.5)


def middle_off_diagonal(symmetric: Array) -> tuple[Array, Array]:
    """Find the two middle order statistics above the diagonal of a non-negative matrix.

    Non-negative floats sort like their bit patterns, so the k-th smallest is found by bisection on bits: 31 counts
    over the matrix (63 in float64) in place of a sort, which is what costs at N = 100 and more.

    Args:
        symmetric: A symmetric matrix of non-negative numbers, N x N with N of at least 2.

    Returns:
        The lower and the upper middle entry; for an odd number of pairs they are equal.
    """
    n, dtype = symmetric.shape[0], symmetric.dtype
    pairs = n * (n - 1) // 2
    rank = (pairs - 1) // 2  # zero-based, lower middle
    integers = jnp.int32 if dtype == jnp.float32 else jnp.int64
    bits = jax.lax.bitcast_convert_type(symmetric, integers)
    bits = jnp.where(jnp.eye(n, dtype=bool), jnp.iinfo(integers).max, bits)  # the diagonal sorts last

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = low + (high - low) // 2
        enough = jnp.sum(bits <= middle) >= 2 * (rank + 1)  # every pair stands in the matrix twice
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    start = (jnp.zeros((), integers), jnp.array(jnp.iinfo(integers).max - 1, integers))
    lower, _ = jax.lax.fori_loop(0, jnp.iinfo(integers).bits - 1, halve, start)
    if pairs % 2:
        upper = lower
    else:
        repeated = jnp.sum(bits <= lower) >= 2 * (rank + 2)
        upper = jnp.where(repeated, lower, jnp.min(jnp.where(bits > lower, bits, jnp.iinfo(integers).max)))
    return jax.lax.bitcast_convert_type(lower, dtype), jax.lax.bitcast_convert_type(upper, dtype)
