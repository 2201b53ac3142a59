"""LAPACK on many matrices, one matrix after another.

jaxlib 0.10 shares out a LAPACK call on a batch of matrices over XLA's threads, and the calling thread waits for them.
It is one of these threads itself. If as many such calls run at once as there are threads, every thread waits and none
works, so the program never ends. Two threads and two Cholesky factorisations of a batch in one program are enough. A
call with one matrix needs no other thread.

Programs of Fedstein therefore pass single matrices to LAPACK: they use ``jax.lax.map`` without a batch size, not
``jax.vmap``, around factorisations, or the functions below. This takes no more processor time than batches do.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import sequential_vmap


def eigh_each(matrices: Array) -> tuple[Array, Array]:
    """Decompose symmetric matrices.

    Args:
        matrices: n x d x d.

    Returns:
        Eigenvalues (n x d, ascending) and eigenvectors (n x d x d, in columns).
    """

    def one(matrix: Array) -> tuple[Array, Array]:
        values, vectors = jnp.linalg.eigh(matrix)
        return values, vectors

    return jax.lax.map(one, matrices)


@sequential_vmap
def solve(matrix: Array, right: Array) -> Array:
    """Solve a linear system; under ``jax.vmap`` one after another. It has no reverse-mode derivative.

    Args:
        matrix: d x d.
        right: d numbers.

    Returns:
        d numbers.
    """
    return jnp.linalg.solve(matrix, right)


@sequential_vmap
def log_abs_det(matrix: Array) -> Array:
    """Compute log |det| of a matrix; under ``jax.vmap`` one after another. It has no reverse-mode derivative.

    Args:
        matrix: d x d.

    Returns:
        One number.
    """
    return jnp.linalg.slogdet(matrix)[1]
