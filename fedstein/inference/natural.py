"""Gaussian sites in natural parameters: their sums, and distances between them in posterior standard deviations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

WIRE = np.float32  # the precision of means, scores and triangles in messages


class GaussianSite(NamedTuple):
    """log t(theta) = eta . theta - theta' precision theta / 2, in float64 on the host."""

    eta: np.ndarray  # d
    precision: np.ndarray  # d x d


def natural_distance(old: GaussianSite, new: GaussianSite, mean: np.ndarray, covariance: np.ndarray) -> float:
    """How far the posterior would move if ``new`` took the place of ``old``, to first order, in posterior sds.

    The mean would move by V (d_eta - d_Lambda m), and the variances by the diagonal of V d_Lambda V. The distance is
    the largest move of a mean divided by its sd, or of an sd relative to itself, whichever is larger.

    Args:
        old: A site, or a sum of sites.
        new: Another.
        mean: m, the posterior mean.
        covariance: V, the posterior covariance.

    Returns:
        The distance; zero for equal sites, infinite if a number is not finite.
    """
    eta, precision = new.eta - old.eta, new.precision - old.precision
    variances = np.maximum(np.diag(covariance), 1e-300)
    shift = np.abs(covariance @ (eta - precision @ mean)) / np.sqrt(variances)
    widening = 0.5 * np.abs(np.einsum("ij,jk,ki->i", covariance, precision, covariance)) / variances
    distance = max(float(shift.max()), float(widening.max()))
    return distance if math.isfinite(distance) else math.inf


def moments_distance(
    mean: np.ndarray, covariance: np.ndarray, mean_now: np.ndarray, covariance_now: np.ndarray
) -> float:
    """How far q has moved: the root mean square over parameters of shifts in sds and of relative changes of sds.

    Args:
        mean: The earlier mean.
        covariance: The earlier covariance.
        mean_now: The current mean.
        covariance_now: The current covariance.

    Returns:
        The distance; zero for equal moments.
    """
    then, now = np.sqrt(np.diag(covariance)), np.sqrt(np.diag(covariance_now))
    shift = (mean_now - mean) / now
    return float(np.sqrt(np.mean(shift**2 + np.log(now / then) ** 2)))


def no_site(dim: int) -> GaussianSite:
    """The site that means t = 1."""
    return GaussianSite(np.zeros(dim), np.zeros((dim, dim)))


def add_sites(sites: Mapping[int, GaussianSite], dim: int) -> GaussianSite:
    """The sum over clients, in the order of their numbers."""
    total = no_site(dim)
    for client in sorted(sites):
        total = GaussianSite(total.eta + sites[client].eta, total.precision + sites[client].precision)
    return total


def expansion_request(mean: np.ndarray, covariance: np.ndarray) -> dict[str, np.ndarray]:
    """q = N(mean, covariance) as it travels: the covariance as its lower triangle, row by row, all in float32."""
    return {"mean": np.asarray(mean, WIRE), "covariance": packed(covariance).astype(WIRE)}


def read_request(arrays: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance from ``expansion_request``, in float64."""
    mean = np.asarray(arrays["mean"], np.float64)
    return mean, unpacked(np.asarray(arrays["covariance"], np.float64), len(mean))


def site_message(site: GaussianSite, mean: np.ndarray) -> dict[str, np.ndarray]:
    """A site as it travels: its score at the mean of the request, and Lambda as its lower triangle, in float32.

    Where the posterior mean ends up follows from the scores alone, and these are small where eta and Lambda m are
    large, so that single precision costs nothing.
    """
    gradient = np.asarray(site.eta, np.float64) - site.precision @ mean
    return {"gradient": gradient.astype(WIRE), "precision": packed(site.precision).astype(WIRE)}


def read_site(arrays: Mapping[str, Any], mean: np.ndarray) -> GaussianSite:
    """The site from ``site_message``, eta = gradient + Lambda m."""
    gradient = np.asarray(arrays["gradient"], np.float64)
    precision = unpacked(np.asarray(arrays["precision"], np.float64), len(gradient))
    return GaussianSite(gradient + precision @ mean, precision)


def implausible_site(arrays: Mapping[str, Any]) -> str:
    """Describe what is wrong with the message of a site that has the right shapes; empty if nothing is wrong."""
    if not all(np.isfinite(array).all() for array in arrays.values()):
        return "the expansion holds numbers that are not finite (NaN or infinity)"
    dim = len(arrays["gradient"])
    values = np.linalg.eigvalsh(unpacked(np.asarray(arrays["precision"], np.float64), dim))
    if values[0] < -1e-6 * max(abs(values[-1]), 1e-12):
        return f"the expansion's precision has a negative eigenvalue, {values[0]:.3g}"
    return ""


def nodes_request(means: np.ndarray, covariances: np.ndarray) -> dict[str, np.ndarray]:
    """Several q as they travel: J x d means and J lower triangles, in float32."""
    triangles = np.stack([packed(matrix) for matrix in covariances])
    return {"means": np.asarray(means, WIRE), "covariances": triangles.astype(WIRE)}


def read_nodes_request(arrays: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances from ``nodes_request``, in float64."""
    means = np.asarray(arrays["means"], np.float64)
    triangles = np.asarray(arrays["covariances"], np.float64)
    return means, np.stack([unpacked(triangle, means.shape[1]) for triangle in triangles])


def nodes_message(found: Sequence[tuple[GaussianSite, float]], means: np.ndarray) -> dict[str, np.ndarray]:
    """A client's expansions over several q as they travel, with its average log-likelihood over each (float64)."""
    messages = [site_message(site, mean) for (site, _), mean in zip(found, means, strict=True)]
    return {
        **{name: np.stack([message[name] for message in messages]) for name in ("gradient", "precision")},
        "value": np.array([value for _, value in found]),
    }


def read_nodes(arrays: Mapping[str, Any], means: np.ndarray) -> list[tuple[GaussianSite, float]]:
    """The expansions from ``nodes_message``."""
    parts = zip(arrays["gradient"], arrays["precision"], arrays["value"], means, strict=True)
    return [(read_site({"gradient": g, "precision": t}, mean), float(value)) for g, t, value, mean in parts]


def implausible_nodes(arrays: Mapping[str, Any]) -> str:
    """Describe what is wrong with a message of several expansions of the right shapes; empty if nothing is wrong."""
    if not np.isfinite(arrays["value"]).all():
        return "an average log-likelihood is not finite (NaN or infinity)"
    parts = zip(arrays["gradient"], arrays["precision"], strict=True)
    return next(filter(None, (implausible_site({"gradient": g, "precision": t}) for g, t in parts)), "")


def packed(matrix: np.ndarray) -> np.ndarray:
    """The lower triangle of a symmetric matrix, row by row."""
    return np.asarray(matrix, np.float64)[np.tril_indices(len(matrix))]


def unpacked(triangle: np.ndarray, dim: int) -> np.ndarray:
    """The symmetric matrix with that lower triangle."""
    matrix = np.zeros((dim, dim))
    matrix[np.tril_indices(dim)] = triangle
    return np.tril(matrix) + np.tril(matrix, -1).T
