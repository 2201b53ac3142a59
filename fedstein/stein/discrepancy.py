"""Kernelized Stein Discrepancy and Hilbert inner product (eqn:theorem1); ksd(s) = hip(s, s).

With k the RBF kernel, grad_{theta_j} k_ij = (2/h) k_ij (theta_i - theta_j); summed over j this is row i of
R = (2/h)(diag(K 1) - K) Theta, and trace(grad_i grad_j k_ij) = k_ij (2d/h - 4 D_ij / h^2). So

    N^2 hip(a, b) = <a, K b> + <a, R> + <b, R> + sum_ij trace_ij,

and all that does not depend on the scores is a *frame* that many scores can share.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.stein.bandwidth import median_bandwidth
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
    rbf_kernel,
    same_shape,
)

TOGETHER = 8  # scores that one pass over memory adds up


class Frame(NamedTuple):
    """What HIP and KSD need of the particles alone."""

    kernel: Array  # K, N x N
    repulsion: Particles  # R, like the particles
    trace: Array  # the sum of the traces


class HipTerms(NamedTuple):
    """The four sums over i, j of Theorem 1, each divided by N^2: their sum is the HIP."""

    scores: Array  # s1_i^T k_ij s2_j
    first: Array  # s1_i^T grad_{theta_j} k_ij
    second: Array  # grad_{theta_i} k_ij^T s2_j
    trace: Array  # trace(grad_{theta_i, theta_j} k_ij)


def hip(
    particles: Particles, scores_a: Particles, scores_b: Particles, bandwidth: Array | float | None = None
) -> Array:
    """<phi_a, phi_b> in the RKHS, as the V-statistic over all i, j (eqn:theorem1). May be negative."""
    terms = hip_terms(particles, scores_a, scores_b, bandwidth)
    return terms.scores + terms.first + terms.second + terms.trace


def ksd(particles: Particles, scores: Particles, bandwidth: Array | float | None = None) -> Array:
    """S(q, p) = ||phi||^2 (eqn:KSD), the squared norm, diagonal included: never negative up to rounding."""
    return hip(particles, scores, scores, bandwidth)


def hip_terms(
    particles: Particles, scores_a: Particles, scores_b: Particles, bandwidth: Array | float | None = None
) -> HipTerms:
    """Theorem 1 term by term."""
    particles = as_particles(particles)
    scores_a, scores_b = same_shape(particles, scores_a, "scores_a"), same_shape(particles, scores_b, "scores_b")
    check_bandwidth(bandwidth)
    return _hip_terms(particles, scores_a, scores_b, bandwidth)


@jax.jit
def _hip_terms(
    particles: Particles, scores_a: Particles, scores_b: Particles, bandwidth: Array | float | None
) -> HipTerms:
    frame, n2 = frame_of(centred(particles)[0], bandwidth), count(particles) ** 2
    return HipTerms(
        _dot(scores_a, combine([(frame.kernel, scores_b)])) / n2,
        _dot(scores_a, frame.repulsion) / n2,
        _dot(scores_b, frame.repulsion) / n2,
        frame.trace / n2,
    )


def frame_of(offset: Particles, bandwidth: Array | float | None = None) -> Frame:
    """The frame of particles given relative to an origin near them."""
    squared = gram_distances(offset)
    h = median_bandwidth(squared) if bandwidth is None else bandwidth
    kernel = rbf_kernel(squared, h)
    laplacian = (2 / h) * (jnp.diag(jnp.sum(kernel, axis=1)) - kernel)
    trace = jnp.sum(kernel * (2 * dimension(offset) - 4 * (squared / h))) / h
    return Frame(kernel, combine([(laplacian, offset)]), trace)


def ksd_in(frame: Frame, scores: Particles) -> Array:
    """KSD of scores in a frame that is there already: N^2 ksd = <K, S S'> + 2 <s, R> + trace.

    By the Gram matrix of the scores, which is N x N, so that K s, as large as the scores, never comes into being.
    """
    scores = jax.lax.optimization_barrier(scores)  # else XLA's CPU compiler makes them anew inside the products
    squared = jnp.sum(frame.kernel * inner(scores, scores))
    return (squared + 2 * _dot(scores, frame.repulsion) + frame.trace) / frame.kernel.shape[0] ** 2


def kernel_of(particles: Particles) -> Array:
    """The kernel matrix of particles, at the median bandwidth."""
    squared = gram_distances(centred(particles)[0])
    return rbf_kernel(squared, median_bandwidth(squared))


def norm_in(kernel: Array, scores: Particles) -> Array:
    """(1/N^2) sum_ij k_ij s_i . s_j: the squared RKHS norm of the smoothed scores, without the repulsion of KSD."""
    scores = jax.lax.optimization_barrier(scores)
    return jnp.sum(kernel * inner(scores, scores)) / kernel.shape[0] ** 2


def mean_hips(particles: Particles, scores: Sequence[Particles], bandwidth: Array | float | None = None) -> list[Array]:
    """hip(s_k, s') for every k, s' the mean of the scores (Lemma 3).

    All of them share one array: N^2 hip_k = <s_k, K s' + R> + <s', R> + trace, so each further client costs one
    inner product, and K clients are never stacked into one array.
    """
    particles = as_particles(particles)
    scores = [same_shape(particles, score) for score in scores]
    check_bandwidth(bandwidth)
    total = scores[0]
    for at in range(1, len(scores), TOGETHER):
        total = _add(total, *scores[at : at + TOGETHER])
    against, constant = _against_mean(particles, total, 1.0 / len(scores), bandwidth)
    n2 = count(particles) ** 2
    return [(_dot_jit(s, against) + constant) / n2 for s in scores]


@jax.jit
def _against_mean(
    particles: Particles, total: Particles, weight: float, bandwidth: Array | float | None
) -> tuple[Particles, Array]:
    frame = frame_of(centred(particles)[0], bandwidth)
    mean = jax.tree.map(lambda s: s * weight, total)
    against = jax.tree.map(jnp.add, combine([(frame.kernel, mean)]), frame.repulsion)
    return against, _dot(mean, frame.repulsion) + frame.trace


def _dot(a: Particles, b: Particles) -> Array:
    return add_up(jax.tree.map(lambda x, y: jnp.sum(x * y), a, b))


_dot_jit = jax.jit(_dot)
_add = jax.jit(partial(jax.tree.map, lambda first, *others: reduce(jnp.add, others, first)))
