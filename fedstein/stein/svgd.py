"""The SVGD direction (eqn:svgd) and the same for a target with KDE factors (eqn:glocal_svgd, eqn:local_svgd)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.stein.bandwidth import median_bandwidth
from fedstein.stein.kde import Mixture, pull
from fedstein.stein.kernel import Kernel, check_kernel
from fedstein.stein.kernels import (
    Particles,
    as_particles,
    centred,
    check_bandwidth,
    combine,
    count,
    dimension,
    gram_distances,
    own_distances,
    same_shape,
)
from fedstein.stein.rbf import RBF


def svgd_direction(
    particles: Particles, scores: Particles, bandwidth: Array | float | None = None, *, kernel: Kernel = RBF
) -> Any:
    """Work out phi(theta_n) = (1/N) sum_j [ k(theta_j, theta_n) s_j + grad_{theta_j} k(theta_j, theta_n) ].

    With K the kernel's matrix and L its Laplacian this is two matrix products: phi = (1/N) [ K S + L Theta ]. For the
    RBF kernel and r = K 1, L = (2/h) (diag(r) - K).

    Args:
        particles: The particles Theta, N x d or blocks.
        scores: The scores S of the target at the particles, in the form of the particles.
        bandwidth: The bandwidth h; the median bandwidth of the particles if it is left out.
        kernel: The kernel k.

    Returns:
        The direction phi, in the form of the particles.

    Raises:
        TypeError: The kernel is no ``Kernel``, or the arrays have a type other than float32 and float64, or are float64
            without JAX's x64 flag.
        ValueError: A shape or the bandwidth is not as described, or one particle alone has no bandwidth given.
    """
    particles = as_particles(particles)
    check_bandwidth(bandwidth)
    check_kernel(kernel)
    return _svgd_direction(particles, same_shape(particles, scores), bandwidth, kernel)


@partial(jax.jit, static_argnames="kernel")
def _svgd_direction(particles: Particles, scores: Particles, bandwidth: Array | float | None, kernel: Kernel) -> Any:
    return tilted_direction(centred(particles)[0], scores, (), bandwidth=bandwidth, kernel=kernel)


def tilted_direction(
    particles: Particles,
    scores: Particles | None,
    mixtures: Sequence[Mixture],
    *,
    bandwidth: Array | float | None = None,
    kde_bandwidth: Array | float = 0.55,
    density: str = "log",
    kde_dim: int | None = None,
    linear: tuple[float, Particles] | None = None,
    kernel: Kernel = RBF,
) -> Any:
    """Work out the SVGD direction for the target whose score is ``scores + sum_c sign_c * score(kde of centres_c)``.

    The KDE scores are never materialised: each is A_c Y_c - diag(A_c 1) Theta, so K times their sum is a product of
    small coefficient matrices with the arrays that are there already:

        N phi = K S + sum_c sign_c (K A_c) Y_c + [ L - K diag(sum_c sign_c A_c 1) ] Theta,

    with L = (2/h)(diag(K 1) - K) for the RBF kernel.

    Everything but S is invariant under translation: the caller passes particles and centres relative to one origin
    near the particles, so that float32 does not cancel. ``linear = (c, origin)`` adds the score c * theta (a Gaussian
    prior's, say) without an array of its own: c K goes to the coefficients of Theta, and c K 1 times the origin is an
    outer product.

    Args:
        particles: The particles Theta relative to the origin, N x d or blocks; not validated.
        scores: The part S of the score that is no KDE and not linear, in the form of the particles, or None.
        mixtures: The KDE factors, their centres relative to the same origin.
        bandwidth: The bandwidth h of the kernel; the median bandwidth of the particles if it is left out.
        kde_bandwidth: The bandwidth lambda of the KDE factors.
        density: Which form of the KDE, ``"log"`` or ``"reference"`` (see ``kde.pull``).
        kde_dim: The dimension d of the reference normaliser; the dimension of the particles if it is left out.
        linear: The factor c and the origin of a score c * theta, or None.
        kernel: The kernel k; static if the caller compiles.

    Returns:
        The direction phi, in the form of the particles.

    Raises:
        ValueError: ``density`` is neither of the two, or one particle alone has no bandwidth given.
    """
    n = count(particles)
    squared, own_norms = own_distances(particles)
    h = median_bandwidth(squared) if bandwidth is None else bandwidth
    matrix = kernel.matrix(squared, h)
    on_particles = kernel.laplacian(matrix, squared, h)
    terms = [] if scores is None else [(matrix, scores)]
    for centres, sign, norms in mixtures:
        apart = gram_distances(particles, centres, norms, own_norms)
        weights = sign * pull(apart, kde_bandwidth, density, kde_dim or dimension(particles))
        terms.append((matrix @ weights, centres))
        on_particles = on_particles - matrix * jnp.sum(weights, axis=1)[None, :]
    if linear is not None:
        on_particles = on_particles + linear[0] * matrix
    terms.append((on_particles, particles))
    phi = combine([(c / n, a) for c, a in terms])
    if linear is None:
        return phi
    shares = (linear[0] / n * jnp.sum(matrix, axis=1))[:, None]
    return jax.tree.map(lambda p, o: p + shares * o[None, :], phi, linear[1])
