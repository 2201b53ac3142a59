"""HIP from random projections of the scores: m numbers a particle in place of d, and right on average.

A projection P adds the coordinates of a vector up in m sums, each coordinate in one sum drawn at random and with a
random sign (the count sketch of Charikar, Chen and Farach-Colton 2002). For every x and y

    E <P x, P y> = <x, y>,     var <P x, P y> <= (|x|^2 |y|^2 + <x, y>^2) / m.

All clients of a round use the same P. N^2 hip(a, b) = <a, K b> + <a, R> + <b, R> + trace is a sum of such inner
products, with K over particles and not over coordinates, so that it is estimated from P a, P b and P R.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.stein.discrepancy import frame_of
from fedstein.stein.kernel import Kernel
from fedstein.stein.kernels import centred
from fedstein.stein.rbf import RBF


def projection_key(particles: Array) -> Array:
    """A key from the bits of the particles, which server and clients both have and which differ in every round.

    Args:
        particles: N x d, in float32 or float64.

    Returns:
        The key of the round's projection.
    """
    words = jax.lax.bitcast_convert_type(particles[:, :1].astype(jnp.float32), jnp.uint32)
    mixed = jax.lax.reduce(words.ravel(), jnp.uint32(0), jax.lax.bitwise_xor, (0,))
    return jax.random.fold_in(jax.random.key(0), mixed)


def project(key: Array, vectors: Array, size: int) -> Array:
    """Project every row of an array.

    Args:
        key: The key of the projection; the same key gives the same projection.
        vectors: N x d.
        size: m, the numbers that are left of a row.

    Returns:
        N x m.
    """
    dim = vectors.shape[1]
    where, sign = jax.random.split(key)
    sums = jax.random.randint(where, (dim,), 0, size)
    signed = vectors * jax.random.rademacher(sign, (dim,), vectors.dtype)
    return jax.ops.segment_sum(signed.T, sums, num_segments=size).T


def projected_hips(particles: Array, projected: Sequence[Array], *, kernel: Kernel = RBF) -> list[Array]:
    """Estimate hip(s_k, s') for every k, s' the mean of the scores, from projections of the scores.

    Args:
        particles: The particles, N x d.
        projected: P s_k of every client, at least one, each N x m, with the key ``projection_key(particles)``.
        kernel: The kernel k.

    Returns:
        One scalar for every client, whose expectation over projections is that of ``mean_hips``.
    """
    mean = sum(projected[1:], start=projected[0]) / len(projected)
    against, constant = _against_mean(particles, mean, kernel)
    return [(jnp.sum(each * against) + constant) / particles.shape[0] ** 2 for each in projected]


@partial(jax.jit, static_argnames="kernel")
def _against_mean(particles: Array, mean: Array, kernel: Kernel) -> tuple[Array, Array]:
    frame = frame_of(centred(particles)[0], kernel=kernel)
    repulsion = project(projection_key(particles), frame.repulsion, mean.shape[1])
    return frame.kernel @ mean + repulsion, jnp.sum(mean * repulsion) + frame.trace
