"""The RBF kernel k(x, x') = exp(-||x - x'||^2 / h), the paper's."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from fedstein.stein.kernel import Kernel


def rbf_kernel(squared: Array, bandwidth: Array | float) -> Array:
    """Work out the RBF kernel k_ij = exp(-D_ij / h).

    Args:
        squared: The squared distances D, of any shape.
        bandwidth: The bandwidth h.

    Returns:
        The kernel's values, in the shape of ``squared``.
    """
    return jnp.exp(-squared / bandwidth)


def rbf_laplacian(matrix: Array, squared: Array, h: Array | float) -> Array:
    """Work out L = (2/h) (diag(K 1) - K), as grad_{theta_j} k_ij = (2/h) k_ij (theta_i - theta_j).

    Args:
        matrix: The kernel matrix K, N x N.
        squared: The squared distances D, N x N; not needed here.
        h: The bandwidth.

    Returns:
        L, N x N, with sum_j grad_{theta_j} k_ij = (L Theta)_i.
    """
    return (2 / h) * (jnp.diag(jnp.sum(matrix, axis=1)) - matrix)


def rbf_trace(matrix: Array, squared: Array, h: Array | float, dim: int) -> Array:
    """Work out sum_ij trace(grad_{theta_i} grad_{theta_j} k_ij) = sum_ij k_ij (2d/h - 4 D_ij / h^2).

    Args:
        matrix: The kernel matrix K, N x N.
        squared: The squared distances D, N x N.
        h: The bandwidth.
        dim: The dimension d of the particles.

    Returns:
        The sum, a scalar.
    """
    return jnp.sum(matrix * (2 * dim - 4 * (squared / h))) / h


RBF = Kernel("rbf", "Gaussian, exp(-||x - x'||^2 / h): the paper's", rbf_kernel, rbf_laplacian, rbf_trace)
