"""Kernelized Stein Discrepancy and Hilbert inner product (eqn:theorem1); ksd(s) = hip(s, s).

Summed over j, grad_{theta_j} k_ij is row i of R = L Theta, L the kernel's Laplacian. So

    N^2 hip(a, b) = <a, K b> + <a, R> + <b, R> + sum_ij trace(grad_i grad_j k_ij).

With k the RBF kernel, grad_{theta_j} k_ij = (2/h) k_ij (theta_i - theta_j), L = (2/h)(diag(K 1) - K), and
trace(grad_i grad_j k_ij) = k_ij (2d/h - 4 D_ij / h^2).

All that does not depend on the scores is a *frame* that many scores can share.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.stein.bandwidth import median_bandwidth
from fedstein.stein.kernel import Kernel, check_kernel
from fedstein.stein.kernels import (
    Particles,
    add_up,
    as_particles,
    centred,
    check_bandwidth,
    combine,
    count,
    dimension,
    gram_distances,
    inner,
    same_shape,
)
from fedstein.stein.rbf import RBF

TOGETHER = 8  # scores that one pass over memory adds up


class Frame(NamedTuple):
    """The terms of HIP and KSD that depend on the particles alone.

    Attributes:
        kernel: The kernel matrix K, N x N.
        repulsion: R = L Theta, in the form of the particles.
        trace: The sum of the traces, a scalar.
    """

    kernel: Array
    repulsion: Particles
    trace: Array


class HipTerms(NamedTuple):
    """The four sums over i, j of Theorem 1, each divided by N^2: their sum is the HIP.

    Attributes:
        scores: The sum of s1_i^T k_ij s2_j.
        first: The sum of s1_i^T grad_{theta_j} k_ij.
        second: The sum of grad_{theta_i} k_ij^T s2_j.
        trace: The sum of trace(grad_{theta_i, theta_j} k_ij).
    """

    scores: Array
    first: Array
    second: Array
    trace: Array


def hip(
    particles: Particles,
    scores_a: Particles,
    scores_b: Particles,
    bandwidth: Array | float | None = None,
    *,
    kernel: Kernel = RBF,
) -> Array:
    """Work out <phi_a, phi_b> in the RKHS, as the V-statistic over all i, j (eqn:theorem1). It may be negative.

    Args:
        particles: The particles, N x d or blocks.
        scores_a: The scores of the first target at the particles, in the form of the particles.
        scores_b: The scores of the second target.
        bandwidth: The bandwidth h; the median bandwidth of the particles if it is left out.
        kernel: The kernel k.

    Returns:
        The Hilbert inner product, a scalar.

    Raises:
        TypeError: The kernel is no ``Kernel``, or the arrays have a type other than float32 and float64, or are float64
            without JAX's x64 flag.
        ValueError: A shape or the bandwidth is not as described, or one particle alone has no bandwidth given.
    """
    terms = hip_terms(particles, scores_a, scores_b, bandwidth, kernel=kernel)
    return terms.scores + terms.first + terms.second + terms.trace


def ksd(
    particles: Particles, scores: Particles, bandwidth: Array | float | None = None, *, kernel: Kernel = RBF
) -> Array:
    """Work out S(q, p) = ||phi||^2 (eqn:KSD), the squared norm, diagonal included.

    Args:
        particles: The particles, N x d or blocks: the sample of q.
        scores: The scores of p at the particles, in the form of the particles.
        bandwidth: The bandwidth h; the median bandwidth of the particles if it is left out.
        kernel: The kernel k.

    Returns:
        The discrepancy, a scalar that is never negative up to rounding.

    Raises:
        TypeError: The kernel is no ``Kernel``, or the arrays have a type other than float32 and float64, or are float64
            without JAX's x64 flag.
        ValueError: A shape or the bandwidth is not as described, or one particle alone has no bandwidth given.
    """
    return hip(particles, scores, scores, bandwidth, kernel=kernel)


def hip_terms(
    particles: Particles,
    scores_a: Particles,
    scores_b: Particles,
    bandwidth: Array | float | None = None,
    *,
    kernel: Kernel = RBF,
) -> HipTerms:
    """Work out Theorem 1 term by term.

    Args:
        particles: The particles, N x d or blocks.
        scores_a: The scores of the first target at the particles, in the form of the particles.
        scores_b: The scores of the second target.
        bandwidth: The bandwidth h; the median bandwidth of the particles if it is left out.
        kernel: The kernel k.

    Returns:
        The four terms; their sum is the HIP.

    Raises:
        TypeError: The kernel is no ``Kernel``, or the arrays have a type other than float32 and float64, or are float64
            without JAX's x64 flag.
        ValueError: A shape or the bandwidth is not as described, or one particle alone has no bandwidth given.
    """
    particles = as_particles(particles)
    scores_a, scores_b = same_shape(particles, scores_a, "scores_a"), same_shape(particles, scores_b, "scores_b")
    check_bandwidth(bandwidth)
    check_kernel(kernel)
    return _hip_terms(particles, scores_a, scores_b, bandwidth, kernel)


@partial(jax.jit, static_argnames="kernel")
def _hip_terms(
    particles: Particles, scores_a: Particles, scores_b: Particles, bandwidth: Array | float | None, kernel: Kernel
) -> HipTerms:
    frame, n2 = frame_of(centred(particles)[0], bandwidth, kernel=kernel), count(particles) ** 2
    return HipTerms(
        _dot(scores_a, combine([(frame.kernel, scores_b)])) / n2,
        _dot(scores_a, frame.repulsion) / n2,
        _dot(scores_b, frame.repulsion) / n2,
        frame.trace / n2,
    )


def frame_of(offset: Particles, bandwidth: Array | float | None = None, *, kernel: Kernel = RBF) -> Frame:
    """Work out the frame of particles.

    Args:
        offset: The particles relative to an origin near them, N x d or blocks; not validated.
        bandwidth: The bandwidth h; the median bandwidth of the particles if it is left out.
        kernel: The kernel k; static if the caller compiles.

    Returns:
        The frame.

    Raises:
        ValueError: One particle alone has no bandwidth given.
    """
    squared = gram_distances(offset)
    h = median_bandwidth(squared) if bandwidth is None else bandwidth
    matrix = kernel.matrix(squared, h)
    laplacian = kernel.laplacian(matrix, squared, h)
    trace = kernel.trace(matrix, squared, h, dimension(offset))
    return Frame(matrix, combine([(laplacian, offset)]), trace)


def ksd_in(frame: Frame, scores: Particles) -> Array:
    """Work out the KSD of scores from a frame that was computed before: N^2 ksd = <K, S S'> + 2 <s, R> + trace.

    This goes by the Gram matrix of the scores, which is N x N, so that K s, as large as the scores, never comes into
    being.

    Args:
        frame: The frame of the particles.
        scores: The scores at the particles, in the form of the particles; not validated.

    Returns:
        The discrepancy, a scalar.
    """
    scores = jax.lax.optimization_barrier(scores)  # else XLA's CPU compiler makes them anew inside the products
    squared = jnp.sum(frame.kernel * inner(scores, scores))
    return (squared + 2 * _dot(scores, frame.repulsion) + frame.trace) / frame.kernel.shape[0] ** 2


def kernel_of(particles: Particles, *, kernel: Kernel = RBF) -> Array:
    """Work out the kernel matrix of particles, at the median bandwidth.

    Args:
        particles: The particles, N x d or blocks; not validated.
        kernel: The kernel k; static if the caller compiles.

    Returns:
        The kernel matrix K, N x N.

    Raises:
        ValueError: There are fewer than two particles.
    """
    squared = gram_distances(centred(particles)[0])
    return kernel.matrix(squared, median_bandwidth(squared))


def norm_in(matrix: Array, scores: Particles) -> Array:
    """Work out (1/N^2) sum_ij k_ij s_i . s_j: the squared RKHS norm of the smoothed scores, without KSD's repulsion.

    Args:
        matrix: The kernel matrix K, N x N.
        scores: The scores, N x d or blocks; not validated.

    Returns:
        The squared norm, a scalar.
    """
    scores = jax.lax.optimization_barrier(scores)
    return jnp.sum(matrix * inner(scores, scores)) / matrix.shape[0] ** 2


def mean_hips(
    particles: Particles, scores: Sequence[Particles], bandwidth: Array | float | None = None, *, kernel: Kernel = RBF
) -> list[Array]:
    """Work out hip(s_k, s') for every k, s' the mean of the scores (Lemma 3).

    All of them share one array: N^2 hip_k = <s_k, K s' + R> + <s', R> + trace, so each further client costs one
    inner product, and K clients are never stacked into one array.

    Args:
        particles: The particles, N x d or blocks.
        scores: The scores s_k of every client, at least one, each in the form of the particles.
        bandwidth: The bandwidth h; the median bandwidth of the particles if it is left out.
        kernel: The kernel k.

    Returns:
        One scalar for every client, in the order of the scores.

    Raises:
        IndexError: There are no scores.
        TypeError: The kernel is no ``Kernel``, or the arrays have a type other than float32 and float64, or are float64
            without JAX's x64 flag.
        ValueError: A shape or the bandwidth is not as described, or one particle alone has no bandwidth given.
    """
    particles = as_particles(particles)
    scores = [same_shape(particles, score) for score in scores]
    check_bandwidth(bandwidth)
    check_kernel(kernel)
    total = scores[0]
    for at in range(1, len(scores), TOGETHER):
        total = _add(total, *scores[at : at + TOGETHER])
    against, constant = _against_mean(particles, total, 1.0 / len(scores), bandwidth, kernel)
    n2 = count(particles) ** 2
    return [(_dot_jit(s, against) + constant) / n2 for s in scores]


@partial(jax.jit, static_argnames="kernel")
def _against_mean(
    particles: Particles, total: Particles, weight: float, bandwidth: Array | float | None, kernel: Kernel
) -> tuple[Particles, Array]:
    frame = frame_of(centred(particles)[0], bandwidth, kernel=kernel)
    mean = jax.tree.map(lambda s: s * weight, total)
    against = jax.tree.map(jnp.add, combine([(frame.kernel, mean)]), frame.repulsion)
    return against, _dot(mean, frame.repulsion) + frame.trace


def _dot(a: Particles, b: Particles) -> Array:
    return add_up(jax.tree.map(lambda x, y: jnp.sum(x * y), a, b))


_dot_jit = jax.jit(_dot)
_add = jax.jit(partial(jax.tree.map, lambda first, *others: reduce(jnp.add, others, first)))
