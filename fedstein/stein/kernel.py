"""The contract of a kernel k(x, x') of SVGD, KSD and HIP, and radial kernels from one scalar function.

SVGD, KSD and HIP see a kernel only through its matrix K and two sums of its derivatives over the particles:

    sum_j grad_{theta_j} k_ij = (L Theta)_i        and        sum_ij trace(grad_{theta_i} grad_{theta_j} k_ij).

A kernel works these out from the N x N squared distances D, so it never meets the particles themselves, which may be
large or cut into blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

Bandwidth = Array | float


class Kernel(NamedTuple):
    """A kernel that is symmetric, positive definite and a function of the distance alone.

    A kernel is a static argument of compiled functions: it is hashed by its functions. Make it once, at the level of
    a module; a kernel that is made in every call is compiled in every call.

    Attributes:
        name: The name in the config and in the registry.
        about: One line that says what the kernel is.
        matrix: ``matrix(squared, h)`` is K, N x N, from the squared distances D and the bandwidth h.
        laplacian: ``laplacian(matrix, squared, h)`` is L, N x N, with sum_j grad_{theta_j} k_ij = (L Theta)_i.
        trace: ``trace(matrix, squared, h, dim)`` is the scalar sum_ij trace(grad_{theta_i} grad_{theta_j} k_ij) for
            particles of dimension ``dim``.
    """

    name: str
    about: str
    matrix: Callable[[Array, Bandwidth], Array]
    laplacian: Callable[[Array, Array, Bandwidth], Array]
    trace: Callable[[Array, Array, Bandwidth, int], Array]


def check_kernel(kernel: Any) -> None:
    """Refuse what is not a kernel, a name in particular.

    Args:
        kernel: What a caller passed as the kernel.

    Raises:
        TypeError: It is not a ``Kernel``.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel must be a fedstein.stein.Kernel, got {type(kernel).__name__}: "
            "fedstein.stein.KERNELS.find(name) gives a kernel by its name"
        )


def radial_kernel(name: str, about: str, f: Callable[[Array], Array]) -> Kernel:
    """Make the kernel k(x, x') = f(||x - x'||^2 / h) from f alone; its derivatives come from autodiff.

    With D_ij = ||theta_i - theta_j||^2, k_ij = f(D_ij / h), and k', k'' the derivatives with respect to D_ij,

        grad_{theta_j} k_ij = -2 k'_ij (theta_i - theta_j) = G_ij (theta_i - theta_j),   G = -2 k',
        L = diag(G 1) - G,
        trace(grad_{theta_i} grad_{theta_j} k_ij) = -2 d k'_ij - 4 D_ij k''_ij.

    The inverse multiquadric, for example:

        IMQ = radial_kernel("imq", "inverse multiquadric", lambda r: (1 + r) ** -0.5)

    Args:
        name: The name in the config and in the registry.
        about: One line that says what the kernel is.
        f: A function of one scalar r >= 0 with a scalar result, written in JAX. Autodiff must be able to take it twice,
            at r = 0 too, where a square root of r gives NaN. The kernel is positive definite in every dimension if f is
            completely monotone (f >= 0, f' <= 0, f'' >= 0, and so on), as exp(-r) is.

    Returns:
        The kernel. Nothing is computed before it is used.
    """
    first = jax.grad(f)
    second = jax.grad(first)

    def matrix(squared: Array, h: Bandwidth) -> Array:
        return _entrywise(f, squared / h)

    def laplacian(matrix: Array, squared: Array, h: Bandwidth) -> Array:
        g = (-2 / h) * _entrywise(first, squared / h)
        return jnp.diag(jnp.sum(g, axis=1)) - g

    def trace(matrix: Array, squared: Array, h: Bandwidth, dim: int) -> Array:
        r = squared / h
        return -jnp.sum(2 * dim * _entrywise(first, r) + 4 * r * _entrywise(second, r)) / h

    return Kernel(name, about, matrix, laplacian, trace)


def _entrywise(f: Callable[[Array], Array], r: Array) -> Array:
    return jax.vmap(jax.vmap(f))(r)
