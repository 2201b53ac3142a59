"""The generalised Gauss-Newton matrix of a network by automatic differentiation, for any architecture.

    H = sum_i w_i J_i' R_i R_i' J_i

J_i is the Jacobian of the outputs of row i in the parameters, and R_i R_i' the expected curvature of the likelihood in
the outputs (``models.outputs``). One backward pass for each row and column of R_i gives the rows of R_i' J_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.models.base import Blocks
from fedstein.models.chunks import sum_over_chunks

NUMBERS = 8_000_000  # the largest number of entries in the Jacobians of one piece of the rows
Outputs = Callable[[Sequence[Array], Array], Array]  # arrays of one particle, x -> rows x outputs
Roots = Callable[[Array, Array, Array, int], Array]  # outputs, log gamma, key, samples -> rows x columns x outputs


def diagonal_gauss_newton(
    outputs: Outputs,
    roots: Roots,
    blocks: Blocks,
    log_gamma: Array,
    x: Array,
    weights: Array,
    key: Array,
    samples: int,
) -> Blocks:
    """The diagonal of H at every particle.

    Args:
        outputs: The network of one particle.
        roots: The columns of R.
        blocks: The particles.
        log_gamma: N log-precisions of the noise.
        x: The rows.
        weights: Their weights.
        key: For labels that are drawn.
        samples: Labels to draw for each row; 0 takes the expectation.

    Returns:
        The diagonals, as blocks.
    """

    def one_particle(one: tuple[Array, Blocks, Array]) -> Blocks:
        number, arrays, gamma = one

        def piece(part: Array, rows: Array, row_weights: Array) -> Blocks:
            found = _row_gradients(outputs, roots, arrays, gamma, rows, (key, number, part), samples)
            return tuple(jnp.einsum("r,rkd,rkd->d", row_weights, g, g) for g in found)

        return sum_over_chunks(piece, x, weights, size=_rows(outputs, roots, arrays, x, samples))

    return jax.lax.map(one_particle, (jnp.arange(log_gamma.shape[0]), blocks, log_gamma))


def full_gauss_newton(
    outputs: Outputs, roots: Roots, blocks: Blocks, log_gamma: Array, x: Array, weights: Array
) -> Array:
    """H averaged over the particles, d x d; arguments as for ``diagonal_gauss_newton``."""
    key, count = jax.random.key(0), log_gamma.shape[0]  # nothing is drawn

    def add(total: Array, one: tuple[Blocks, Array]) -> tuple[Array, None]:
        arrays, gamma = one

        def piece(part: Array, rows: Array, row_weights: Array) -> Array:
            found = jnp.concatenate(_row_gradients(outputs, roots, arrays, gamma, rows, (key, part, part), 0), axis=2)
            weighted = found * row_weights[:, None, None]
            return weighted.reshape(-1, found.shape[2]).T @ found.reshape(-1, found.shape[2])

        return total + sum_over_chunks(piece, x, weights, size=_rows(outputs, roots, arrays, x, 0)) / count, None

    width = sum(block.shape[1] for block in blocks)
    return jax.lax.scan(add, jnp.zeros((width, width), x.dtype), (blocks, log_gamma))[0]


def _row_gradients(
    outputs: Outputs,
    roots: Roots,
    arrays: Blocks,
    log_gamma: Array,
    x: Array,
    keys: tuple[Array, Array, Array],
    samples: int,
) -> Blocks:
    """R_i' J_i of every row, as blocks of shape rows x columns x width."""
    key = jax.random.fold_in(jax.random.fold_in(keys[0], keys[1]), keys[2])
    columns = roots(outputs(arrays, x), log_gamma, key, samples)

    def of_row(row: Array, of_outputs: Array) -> Blocks:
        _, back = jax.vjp(lambda parameters: outputs(parameters, row[None, :])[0], arrays)
        return jax.vmap(lambda column: back(column)[0])(of_outputs)

    return jax.vmap(of_row)(x, columns)


def _rows(outputs: Outputs, roots: Roots, arrays: Blocks, x: Array, samples: int) -> int:
    """How many rows a piece may have: a power of two."""
    zero = jnp.zeros((), x.dtype)

    def columns(arrays: Blocks, x: Array) -> Array:
        return roots(outputs(arrays, x), zero, jax.random.key(0), samples)

    width = jax.eval_shape(columns, arrays, x[:1]).shape[1] * sum(array.shape[0] for array in arrays)
    return int(2 ** max(0, min(9, math.floor(math.log2(max(1, NUMBERS / width))))))
