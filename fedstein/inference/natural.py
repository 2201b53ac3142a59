"""Gaussian sites by their natural parameters: sums, and distances in standard deviations of the posterior."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


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
        The distance; zero for equal sites, infinite where a number is not finite.
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
        mean: The mean of then.
        covariance: The covariance of then.
        mean_now: The mean of now.
        covariance_now: The covariance of now.

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
    """q = N(mean, covariance) as it travels: the covariance as its lower triangle, row by row, all in float64."""
    return {"mean": np.asarray(mean, np.float64), "covariance": packed(covariance)}


def read_request(arrays: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance from ``expansion_request``."""
    mean = np.asarray(arrays["mean"], np.float64)
    return mean, unpacked(np.asarray(arrays["covariance"], np.float64), len(mean))


def site_message(site: GaussianSite) -> dict[str, np.ndarray]:
    """A site as it travels: eta, and Lambda as its lower triangle, in float64."""
    return {"eta": np.asarray(site.eta, np.float64), "precision": packed(site.precision)}


def read_site(arrays: Mapping[str, Any]) -> GaussianSite:
    """The site from ``site_message``."""
    eta = np.asarray(arrays["eta"], np.float64)
    return GaussianSite(eta, unpacked(np.asarray(arrays["precision"], np.float64), len(eta)))


def implausible_site(arrays: Mapping[str, Any]) -> str:
    """What is wrong with the message of a site of the right shapes; empty where nothing is."""
    if not all(np.isfinite(array).all() for array in arrays.values()):
        return "the expansion holds numbers that are not finite (NaN or infinity)"
    values = np.linalg.eigvalsh(read_site(arrays).precision)
    if values[0] < -1e-6 * max(abs(values[-1]), 1e-12):
        return f"the expansion's precision has a negative eigenvalue, {values[0]:.3g}"
    return ""


def nodes_request(means: np.ndarray, covariances: np.ndarray) -> dict[str, np.ndarray]:
    """Several q as they travel: J x d means and J lower triangles, in float64."""
    triangles = np.stack([packed(matrix) for matrix in covariances])
    return {"means": np.asarray(means, np.float64), "covariances": triangles}


def read_nodes_request(arrays: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances from ``nodes_request``."""
    means = np.asarray(arrays["means"], np.float64)
    triangles = np.asarray(arrays["covariances"], np.float64)
    return means, np.stack([unpacked(triangle, means.shape[1]) for triangle in triangles])


def nodes_message(found: Sequence[tuple[GaussianSite, float]]) -> dict[str, np.ndarray]:
    """A client's expansions over several q as they travel, with its average log-likelihood over each."""
    return {
        "eta": np.stack([site.eta for site, _ in found]),
        "precision": np.stack([packed(site.precision) for site, _ in found]),
        "value": np.array([value for _, value in found]),
    }


def read_nodes(arrays: Mapping[str, Any]) -> list[tuple[GaussianSite, float]]:
    """The expansions from ``nodes_message``."""
    parts = zip(arrays["eta"], arrays["precision"], arrays["value"], strict=True)
    return [(read_site({"eta": eta, "precision": triangle}), float(value)) for eta, triangle, value in parts]


def implausible_nodes(arrays: Mapping[str, Any]) -> str:
    """What is wrong with the message of several expansions of the right shapes; empty where nothing is."""
    if not np.isfinite(arrays["value"]).all():
        return "an average log-likelihood is not finite (NaN or infinity)"
    parts = zip(arrays["eta"], arrays["precision"], strict=True)
    return next(filter(None, (implausible_site({"eta": e, "precision": t}) for e, t in parts)), "")


def implausible_log_likelihoods(arrays: Mapping[str, Any]) -> str:
    """What is wrong with log-likelihoods at points; minus infinity is a likelihood of zero."""
    values = arrays["log_likelihood"]
    return "a log-likelihood is NaN or plus infinity" if np.isnan(values).any() or np.isposinf(values).any() else ""


def points_request(theta: np.ndarray, mean: np.ndarray, root: np.ndarray) -> dict[str, np.ndarray]:
    """Points as they travel: theta = mean + root z with z in half precision, which is .001 posterior sds.

    Args:
        theta: n x d points.
        mean: About their mean, d.
        root: A lower triangular root of about their covariance, d x d.

    Returns:
        The mean, the root's triangle in float64, and z in float16. ``read_points`` gives the points that are meant.
    """
    standard = np.linalg.solve(root, (theta - mean).T).T
    return {"mean": mean, "root": packed(root), "standard": standard.astype(np.float16)}


def read_points(arrays: Mapping[str, Any]) -> np.ndarray:
    """The points from ``points_request``, n x d in float64."""
    mean = np.asarray(arrays["mean"], np.float64)
    root = np.tril(unpacked(np.asarray(arrays["root"], np.float64), len(mean)))
    return mean + np.asarray(arrays["standard"], np.float64) @ root.T


def packed(matrix: np.ndarray) -> np.ndarray:
    """The lower triangle of a symmetric matrix, row by row."""
    return np.asarray(matrix, np.float64)[np.tril_indices(len(matrix))]


def unpacked(triangle: np.ndarray, dim: int) -> np.ndarray:
    """The symmetric matrix with that lower triangle."""
    matrix = np.zeros((dim, dim))
    matrix[np.tril_indices(dim)] = triangle
    return np.tril(matrix) + np.tril(matrix, -1).T
