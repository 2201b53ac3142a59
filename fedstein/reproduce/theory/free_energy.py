"""The true change of a free energy along one SVGD step (appendix A): arrays in, arrays out.

A step moves theta_n to T(theta_n) = theta_n + eps * phi(theta_n), with

    phi(x) = (1/N) sum_j k(theta_j, x) v_j(x),    v_j(x) = s_j + (2/h)(x - theta_j),

the SVGD direction (eqn:svgd) as a function of x: s_j the score at theta_j, h the bandwidth of the particles, which
stays as it is along T. By the change of variables KL(T q || p) - KL(q || p) is

    mean_n [ log p(theta_n) - log p(T theta_n) - log|det grad T(theta_n)| ],    grad T = I + eps * grad phi,

exactly (eqn:a_kl_2). The determinant is the change of q's entropy; no density of q is estimated for it.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def field(x: Array, particles: Array, scores: Array, bandwidth: Array | float) -> Array:
    """phi at one point x (d), from its definition."""
    kernel, away, pushes = _parts(x, particles, scores, bandwidth)
    return kernel @ pushes / len(away)


def field_gradient(x: Array, particles: Array, scores: Array, bandwidth: Array | float) -> Array:
    """grad phi at one point x, d x d: (1/N) sum_j k_j [ (2/h) I - (2/h) v_j (x - theta_j)^T ]."""
    kernel, away, pushes = _parts(x, particles, scores, bandwidth)
    outer = (kernel[:, None] * pushes).T @ away
    return (2 / bandwidth) * (jnp.sum(kernel) * jnp.eye(len(x), dtype=x.dtype) - outer) / len(away)


def _parts(x: Array, particles: Array, scores: Array, bandwidth: Array | float) -> tuple[Array, Array, Array]:
    """k(theta_j, x), x - theta_j and v_j(x) for every j."""
    away = x - particles
    return jnp.exp(-jnp.sum(away * away, axis=1) / bandwidth), away, scores + (2 / bandwidth) * away


def log_stretch(gradient: Array, epsilon: Array | float) -> Array:
    """log|det(I + eps * grad phi)| for gradients of shape (..., d, d)."""
    return jnp.linalg.slogdet(jnp.eye(gradient.shape[-1], dtype=gradient.dtype) + epsilon * gradient)[1]


def decrease(log_before: Array, log_after: Array, stretch: Array) -> Array:
    """Minus the change of the free energy, divided by alpha: the mean over particles, which are the last axis."""
    return jnp.mean(log_after - log_before + stretch, axis=-1)
