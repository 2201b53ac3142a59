"""The true change of a free energy by one SVGD step (appendix A): arrays in, arrays out.

A step moves theta_n to T(theta_n) = theta_n + eps * phi(theta_n), with

    phi(x) = (1/N) sum_j k(theta_j, x) v_j(x),    v_j(x) = s_j + (2/h)(x - theta_j),

the SVGD direction (eqn:svgd) as a function of x. Here s_j is the score at theta_j, and h is the bandwidth of the
particles, which is constant along T. By the change of variables, KL(T q || p) - KL(q || p) is exactly

    mean_n [ log p(theta_n) - log p(T theta_n) - log|det grad T(theta_n)| ],    grad T = I + eps * grad phi

(eqn:a_kl_2). The determinant is the change of the entropy of q. No density of q is estimated.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from fedstein.inference.linear_algebra import log_abs_det


def field(x: Array, particles: Array, scores: Array, bandwidth: Array | float) -> Array:
    """Compute phi at one point from its definition.

    Args:
        x: The point, d.
        particles: N x d.
        scores: N x d.
        bandwidth: The bandwidth h.
    """
    kernel, away, pushes = _parts(x, particles, scores, bandwidth)
    return kernel @ pushes / len(away)


def field_gradient(x: Array, particles: Array, scores: Array, bandwidth: Array | float) -> Array:
    """Compute grad phi at one point: (1/N) sum_j k_j [ (2/h) I - (2/h) v_j (x - theta_j)^T ].

    Args:
        x: The point, d.
        particles: N x d.
        scores: N x d.
        bandwidth: The bandwidth h.

    Returns:
        d x d.
    """
    kernel, away, pushes = _parts(x, particles, scores, bandwidth)
    outer = (kernel[:, None] * pushes).T @ away
    return (2 / bandwidth) * (jnp.sum(kernel) * jnp.eye(len(x), dtype=x.dtype) - outer) / len(away)


def _parts(x: Array, particles: Array, scores: Array, bandwidth: Array | float) -> tuple[Array, Array, Array]:
    """Return k(theta_j, x), x - theta_j and v_j(x) for every j."""
    away = x - particles
    return jnp.exp(-jnp.sum(away * away, axis=1) / bandwidth), away, scores + (2 / bandwidth) * away


def log_stretch(gradient: Array, epsilon: Array | float) -> Array:
    """Compute log|det(I + eps * grad phi)| for gradients of shape (..., d, d)."""
    matrices = jnp.eye(gradient.shape[-1], dtype=gradient.dtype) + epsilon * gradient
    return jnp.vectorize(log_abs_det, signature="(d,d)->()")(matrices)


def decrease(log_before: Array, log_after: Array, stretch: Array) -> Array:
    """Compute the decrease of the free energy divided by alpha.

    Args:
        log_before: log p at the particles, ... x N.
        log_after: log p at the moved particles, ... x N.
        stretch: The result of ``log_stretch``, ... x N.

    Returns:
        mean_n [ log p(T theta_n) - log p(theta_n) + log|det grad T(theta_n)| ].
    """
    return jnp.mean(log_after - log_before + stretch, axis=-1)
