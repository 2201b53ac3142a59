"""The SVGD direction (eqn:svgd) and the same for a target with KDE factors (eqn:glocal_svgd, eqn:local_svgd)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.stein.bandwidth import median_bandwidth
from fedstein.stein.kde import Mixture, pull
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
    rbf_kernel,
    same_shape,
)


def svgd_direction(particles: Particles, scores: Particles, bandwidth: Array | float | None = None) -> Any:
    """phi(theta_n) = (1/N) sum_j [ k(theta_j, theta_n) s_j + grad_{theta_j} k(theta_j, theta_n) ].

    With k the RBF kernel, K its matrix and r = K 1 this is two matrix products:
    phi = (1/N) [ K S + (2/h) (diag(r) - K) Theta ].
    """
    particles = as_particles(particles)
    check_bandwidth(bandwidth)
    return _svgd_direction(particles, same_shape(particles, scores), bandwidth)


@jax.jit
def _svgd_direction(particles: Particles, scores: Particles, bandwidth: Array | float | None) -> Any:
    return tilted_direction(centred(particles)[0], scores, (), bandwidth=bandwidth)


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
) -> Any:
    """SVGD direction for the target whose score is ``scores + sum_c sign_c * score(kde of centres_c)``.

    The KDE scores never come into being: each is A_c Y_c - diag(A_c 1) Theta, so K times their sum is a product of
    small coefficient matrices with the arrays that are there already:

        N phi = K S + sum_c sign_c (K A_c) Y_c + [ (2/h)(diag(K 1) - K) - K diag(sum_c sign_c A_c 1) ] Theta.

    Everything but S is invariant under translation: the caller passes particles and centres relative to one origin
    near the particles, so that float32 does not cancel. ``linear = (c, origin)`` adds the score c * theta (a Gaussian
    prior's, say) without an array of its own: c K goes to the coefficients of Theta, and c K 1 times the origin is an
    outer product.
    """
    n = count(particles)
    squared, own_norms = own_distances(particles)
    h = median_bandwidth(squared) if bandwidth is None else bandwidth
    kernel = rbf_kernel(squared, h)
    on_particles = (2 / h) * (jnp.diag(jnp.sum(kernel, axis=1)) - kernel)
    terms = [] if scores is None else [(kernel, scores)]
    for centres, sign, norms in mixtures:
        apart = gram_distances(particles, centres, norms, own_norms)
        weights = sign * pull(apart, kde_bandwidth, density, kde_dim or dimension(particles))
        terms.append((kernel @ weights, centres))
        on_particles = on_particles - kernel * jnp.sum(weights, axis=1)[None, :]
    if linear is not None:
        on_particles = on_particles + linear[0] * kernel
    terms.append((on_particles, particles))
    phi = combine([(c / n, a) for c, a in terms])
    if linear is None:
        return phi
    shares = (linear[0] / n * jnp.sum(kernel, axis=1))[:, None]
    return jax.tree.map(lambda p, o: p + shares * o[None, :], phi, linear[1])
