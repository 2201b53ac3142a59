"""Validation and layout of particles, and the pairwise distances that every kernel is a function of."""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Particles = Any  # an N x d array, or a pytree of N x . arrays that stand side by side


def as_particles(particles: Particles, name: str = "particles") -> Particles:
    """Validate at the edge: two-dimensional floating leaves, and no float64 that JAX would silently cast down.

    Args:
        particles: An N x d array, nested lists of numbers, or a pytree of N x . arrays. Integers become floats.
        name: What the argument is called in messages.

    Returns:
        The particles as JAX arrays, in the form they came in.

    Raises:
        TypeError: A leaf is float64 while JAX's x64 flag is off, or a float that is neither float32 nor float64.
        ValueError: A leaf is not two-dimensional, or the leaves differ in their number of particles.
    """

    def check(leaf: Any) -> Array:
        if getattr(leaf, "dtype", None) == np.float64 and jnp.result_type(float) != jnp.float64:
            raise TypeError(
                f"{name} is float64 but JAX's x64 flag is off: pass float32, or call "
                'jax.config.update("jax_enable_x64", True) before any array exists'
            )
        array = jnp.asarray(leaf)
        if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype not in (jnp.float32, jnp.float64):
            raise TypeError(f"{name} must be float32 or float64, got {array.dtype}")
        if array.ndim != 2:
            raise ValueError(f"{name} must be an N x d array, got shape {array.shape}")
        return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(jnp.result_type(float))

    # Lists and tuples of numbers are arrays here; tuples of arrays are blocks.
    if isinstance(particles, (list, tuple)) and not all(hasattr(leaf, "ndim") for leaf in particles):
        return check(jnp.asarray(particles))
    checked = jax.tree.map(check, particles)
    counts = {leaf.shape[0] for leaf in jax.tree.leaves(checked)}
    if len(counts) > 1:
        raise ValueError(f"{name}: every block must have the same number of particles, got {sorted(counts)}")
    return checked


def same_shape(particles: Particles, scores: Particles, name: str = "scores") -> Particles:
    """Validate scores and compare their shape with that of the particles.

    Args:
        particles: The particles, validated already.
        scores: The scores as a caller passed them.
        name: What the scores are called in messages.

    Returns:
        The scores as JAX arrays.

    Raises:
        TypeError: The scores have a type that ``as_particles`` refuses.
        ValueError: The scores have another shape than the particles.
    """
    scores = as_particles(scores, name)
    expected, got = (jax.tree.map(jnp.shape, tree) for tree in (particles, scores))
    if expected != got:
        raise ValueError(f"{name} must have the shape of the particles, {expected}, got {got}")
    return scores


def same_width(a: Particles, b: Particles) -> None:
    """Refuse two sets of particles of different dimension: a width of 1 would broadcast into a wrong answer.

    Args:
        a: Particles.
        b: Other particles, of any number.

    Raises:
        ValueError: The widths of their leaves differ.
    """
    widths = [[leaf.shape[1] for leaf in jax.tree.leaves(tree)] for tree in (a, b)]
    if widths[0] != widths[1]:
        raise ValueError(
            f"expected particles of the same shape but for their number, got widths {widths[0]} and {widths[1]}"
        )


def check_bandwidth(bandwidth: Any) -> None:
    """Refuse a number that is no bandwidth; what is traced or left out is taken as it is.

    Args:
        bandwidth: What a caller passed as the bandwidth.

    Raises:
        ValueError: It is a number that is not finite or not above zero.
    """
    if isinstance(bandwidth, (int, float, np.floating)) and not (0 < bandwidth < float("inf")):
        raise ValueError(f"the bandwidth must be a finite number above zero, got {bandwidth}")


def count(particles: Particles) -> int:
    """Count the particles.

    Args:
        particles: An N x d array or a pytree of N x . arrays.

    Returns:
        N.
    """
    return jax.tree.leaves(particles)[0].shape[0]


def dimension(particles: Particles) -> int:
    """Count the dimensions, over all leaves.

    Args:
        particles: An N x d array or a pytree of N x . arrays.

    Returns:
        d.
    """
    return sum(leaf.shape[1] for leaf in jax.tree.leaves(particles))


def add_up(tree: Any) -> Array:
    """Add up the leaves of a tree.

    Args:
        tree: A pytree of arrays of one shape.

    Returns:
        Their sum, in the same shape.
    """
    return reduce(jnp.add, jax.tree.leaves(tree))


def inner(a: Particles, b: Particles) -> Array:
    """Work out all inner products <a_i, b_j>, by one matrix product per leaf.

    Args:
        a: N particles.
        b: M particles, cut in the same way.

    Returns:
        The Gram matrix, N x M.
    """
    return add_up(jax.tree.map(lambda x, y: x @ y.T, a, b))


def squared_norms(a: Particles) -> Array:
    """Work out ||a_i||^2.

    Args:
        a: N particles.

    Returns:
        N numbers.
    """
    return add_up(jax.tree.map(lambda x: jnp.sum(x * x, axis=1), a))


def centred(particles: Particles) -> tuple[Particles, Particles]:
    """Move the origin to the mean of the particles.

    Args:
        particles: An N x d array or a pytree of N x . arrays.

    Returns:
        The particles relative to their mean, and that mean, which is a constant to autodiff.
    """
    # As a product: XLA's own reduction over the first axis is 20 times slower on two CPU threads.
    average = jnp.full((1, count(particles)), 1 / count(particles), jax.tree.leaves(particles)[0].dtype)
    mean = jax.tree.map(lambda x: jax.lax.stop_gradient(average @ x)[0], particles)
    return jax.tree.map(jnp.subtract, particles, mean), mean


def squared_distances(a: Particles, b: Particles | None = None) -> Array:
    """Work out D_ij = ||a_i - b_j||^2, by one Gram product.

    It is taken around the mean of ``a``: particles that sit close together far from the origin would cancel in
    float32.

    Args:
        a: N particles.
        b: M particles, cut in the same way; the particles ``a`` if they are left out.

    Returns:
        The squared distances D, N x M.

    Raises:
        TypeError: The particles have a type that ``as_particles`` refuses.
        ValueError: The particles have a shape that ``as_particles`` refuses, or ``a`` and ``b`` differ in dimension.
    """
    a = as_particles(a)
    if b is not None:
        b = as_particles(b)
        same_width(a, b)
    a, mean = centred(a)
    return gram_distances(a, None if b is None else jax.tree.map(jnp.subtract, b, mean))


def gram_distances(
    a: Particles, b: Particles | None = None, b_norms: Array | None = None, a_norms: Array | None = None
) -> Array:
    """Work out the same as ``squared_distances`` for arrays that are near the origin already.

    Args:
        a: N particles.
        b: M particles, cut in the same way; the particles ``a`` if they are left out.
        b_norms: The squared norms of ``b``, if they are known.
        a_norms: The squared norms of ``a``, if they are known.

    Returns:
        The squared distances D, N x M.
    """
    if b is None:
        return own_distances(a)[0]
    a_norms = squared_norms(a) if a_norms is None else a_norms
    b_norms = squared_norms(b) if b_norms is None else b_norms
    return jnp.maximum(a_norms[:, None] + b_norms[None, :] - 2 * inner(a, b), 0)


def own_distances(a: Particles) -> tuple[Array, Array]:
    """Work out ``gram_distances`` of particles among themselves.

    Args:
        a: N particles near the origin.

    Returns:
        The squared distances, N x N, and the squared norms of the particles, which are the diagonal of the Gram matrix.
    """
    products = inner(a, a)
    norms = jnp.diagonal(products)
    # In exact arithmetic D_ii = 0 and its gradient vanishes: the mask says so instead of leaving rounding there.
    off_diagonal = 1 - jnp.eye(norms.shape[0], dtype=norms.dtype)
    return jnp.maximum(norms[:, None] + norms[None, :] - 2 * products, 0) * off_diagonal, norms


def combine(terms: list[tuple[Array, Particles]]) -> Particles:
    """Work out sum_t C_t A_t: coefficient matrices times particle arrays, leaf by leaf.

    Args:
        terms: The pairs of a coefficient matrix C_t, N x M_t, and particles A_t, M_t of them; all are cut in one way.

    Returns:
        The sum, N particles cut like the A_t.
    """
    # XLA's CPU compiler otherwise fuses what made the arrays into these products, which is ruinous.
    coefficients, arrays = jax.lax.optimization_barrier(
        (tuple(c for c, _ in terms), tuple(jax.tree.leaves(a) for _, a in terms))
    )
    leaves = [sum(c @ a for c, a in zip(coefficients, same, strict=True)) for same in zip(*arrays, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(terms[0][1]), leaves)
