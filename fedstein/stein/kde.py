"""Gaussian kernel density estimates K(x, x') = exp(-||x - x'||^2 / (2 lambda^2)) and their scores.

Both forms of the score are a *pull* towards the centres,

    score_i = sum_j A_ij (y_j - x_i) = (A Y)_i - (A 1)_i x_i,

so a caller only needs the N x M matrix A and can merge several of them into one product (``svgd.tilted_direction``).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.stein.kernels import (
    Particles,
    as_particles,
    centred,
    check_bandwidth,
    combine,
    dimension,
    gram_distances,
    same_width,
    squared_distances,
    squared_norms,
)

DENSITIES = ("log", "reference")
LOG_FLOOR = math.log(1e-10)  # the floor of the reference density


class Mixture(NamedTuple):
    """One KDE factor of a target: ``sign * log kde(x; centres)``.

    Attributes:
        centres: The centres of the KDE, M of them, cut like the particles.
        sign: The factor of the log-density.
        norms: ||centre||^2 for every centre, if they are known already.
    """

    centres: Particles
    sign: float | Array
    norms: Array | None = None

    def relative_to(self, origin: Particles) -> Mixture:
        """Express the same factor in coordinates around an origin.

        Args:
            origin: The new origin, one row cut like the centres.

        Returns:
            The factor in the new coordinates, with its norms worked out.
        """
        centres = jax.tree.map(jnp.subtract, self.centres, origin)
        return Mixture(centres, self.sign, squared_norms(centres))


def pull(squared: Array, bandwidth: Array | float, density: str, dim: int) -> Array:
    """Work out A_ij of the KDE score for squared distances D (points x centres).

    ``log``: the mathematics, A = softmax_j(-D_ij / 2 lambda^2) / lambda^2, finite however far away the centres are.

    ``reference``: the DSVGD authors' floored form, kept to reproduce their results:
    kde_i = exp(log(sum_j [exp(-D_ij / 2 lambda^2) + 1e-9] + 1e-50) - (d/2) log(N 2 pi lambda^2 + 1e-50)) and the score
    of log(kde + 1e-10). For d >= 55 the floor swamps kde and the score is numerically zero.

    Args:
        squared: The squared distances D, points x centres.
        bandwidth: The bandwidth lambda of the KDE.
        density: Which of the two forms, ``"log"`` or ``"reference"``.
        dim: The dimension d of the reference normaliser.

    Returns:
        The matrix A, points x centres.

    Raises:
        ValueError: ``density`` is neither of the two.
    """
    check_density(density)
    exponent = -squared / (2 * bandwidth**2)
    if density == "log":
        return jax.nn.softmax(exponent, axis=1) / bandwidth**2
    weights = jnp.exp(exponent)
    total = jnp.sum(weights + 1e-9, axis=1) + 1e-50
    log_normaliser = reference_normaliser(squared.shape[1], bandwidth, dim)
    alive = jax.nn.sigmoid(jnp.log(total) - log_normaliser - LOG_FLOOR)  # kde / (kde + 1e-10), without overflow
    return (alive / total)[:, None] * weights / bandwidth**2


def kde_score(
    points: Particles,
    centres: Particles,
    bandwidth: Array | float = 0.55,
    density: str = "log",
    dim: int | None = None,
) -> Any:
    """Work out the gradient of the log-KDE of some centres at every point.

    Args:
        points: Where the gradient is taken, N x d or blocks.
        centres: The centres of the KDE, M x d or blocks cut like the points.
        bandwidth: The bandwidth lambda of the KDE.
        density: Which form of the density, ``"log"`` or ``"reference"`` (see ``pull``).
        dim: The dimension d of the reference normaliser; the dimension of the points if it is left out.

    Returns:
        The score at every point, in the form of the points.

    Raises:
        TypeError: Points or centres have a type other than float32 and float64, or are float64 without JAX's x64 flag.
        ValueError: A shape, the bandwidth or the density is not as described.
    """
    points, centres = as_particles(points, "points"), as_particles(centres, "centres")
    check_bandwidth(bandwidth)
    same_width(points, centres)
    offset, origin = centred(points)
    return offset_kde_score(offset, Mixture(centres, 1.0).relative_to(origin), bandwidth, density, dim)


def offset_kde_score(
    offset: Particles, mixture: Mixture, bandwidth: Array | float, density: str, dim: int | None
) -> Particles:
    """Work out ``sign * score`` of one KDE factor in coordinates around an origin near the points.

    Args:
        offset: The points relative to the origin.
        mixture: The factor, its centres relative to the same origin.
        bandwidth: The bandwidth lambda of the KDE.
        density: Which form of the density, ``"log"`` or ``"reference"`` (see ``pull``).
        dim: The dimension d of the reference normaliser; the dimension of the points if it is None.

    Returns:
        The score times the factor's sign, in the form of the points.

    Raises:
        ValueError: ``density`` is neither of the two.
    """
    apart = gram_distances(offset, mixture.centres, mixture.norms)
    weights = mixture.sign * pull(apart, bandwidth, density, dim or dimension(offset))
    mass = jnp.sum(weights, axis=1, keepdims=True)
    pulled = combine([(weights, mixture.centres)])
    return jax.tree.map(lambda p, x: p - mass * x, pulled, offset)


def kde_log_density(
    points: Particles,
    centres: Particles,
    bandwidth: Array | float = 0.55,
    density: str = "log",
    dim: int | None = None,
) -> Array:
    """Work out the log-density that ``kde_score`` is the gradient of.

    ``log``: log( (1/M) sum_j N(x_i; y_j, lambda^2 I) ), normalised, in log space. ``reference``: log(kde_i + 1e-10).

    Args:
        points: Where the log-density is taken, N x d or blocks.
        centres: The centres of the KDE, M x d or blocks cut like the points.
        bandwidth: The bandwidth lambda of the KDE.
        density: Which form of the density, ``"log"`` or ``"reference"``.
        dim: The dimension d of the reference normaliser; the dimension of the points if it is left out.

    Returns:
        The log-density at every point, N numbers.

    Raises:
        TypeError: Points or centres have a type other than float32 and float64, or are float64 without JAX's x64 flag.
        ValueError: A shape, the bandwidth or the density is not as described.
    """
    points, centres = as_particles(points, "points"), as_particles(centres, "centres")
    check_bandwidth(bandwidth)
    check_density(density)
    squared = squared_distances(points, centres)
    exponent, dim = -squared / (2 * bandwidth**2), dim or dimension(points)
    if density == "reference":
        total = jnp.sum(jnp.exp(exponent) + 1e-9, axis=1) + 1e-50
        return jnp.logaddexp(jnp.log(total) - reference_normaliser(squared.shape[1], bandwidth, dim), LOG_FLOOR)
    constant = math.log(squared.shape[1]) + 0.5 * dimension(points) * jnp.log(2 * math.pi * bandwidth**2)
    return jax.nn.logsumexp(exponent, axis=1) - constant


def reference_normaliser(count: int, bandwidth: Array | float, dim: int) -> Array:
    """Work out (d/2) log(N 2 pi lambda^2 + 1e-50); the N inside the power is the authors'.

    Args:
        count: The number N of centres.
        bandwidth: The bandwidth lambda of the KDE.
        dim: The dimension d.

    Returns:
        The logarithm of the normaliser of the reference density, a scalar.
    """
    return (dim / 2) * jnp.log(count * 2 * math.pi * bandwidth**2 + 1e-50)


def check_density(density: str) -> None:
    """Refuse an unknown form of the density.

    Args:
        density: The name of the form.

    Raises:
        ValueError: The name is neither ``"log"`` nor ``"reference"``.
    """
    if density not in DENSITIES:
        raise ValueError(f"density must be one of {', '.join(DENSITIES)}, got {density!r}")
