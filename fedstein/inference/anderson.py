"""Anderson acceleration of the fixed-point iteration of sites: the next sites combine the last few answers.

A pass maps sites t to expansions F(t), and the fixed point is F(t) = t. From the last few residuals F(t_j) - t_j,
summed over clients, take the combination sum_j a_j (F(t_j) - t_j), sum_j a_j = 1, that is smallest, and go on at sum_j
a_j F(t_j) (Anderson 1965; Walker and Ni 2011). Residuals are measured as the posterior would move, in its standard
deviations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedstein.inference.natural import GaussianSite

LARGEST = 20.0  # the sum of |a_j| beyond which the residuals are too alike to be combined
RIDGE = 1e-10


def mixing(residuals: Sequence[GaussianSite], mean: np.ndarray, covariance: np.ndarray) -> np.ndarray | None:
    """The shares a_j of the last answers.

    Args:
        residuals: F(t_j) - t_j, summed over clients; the newest last.
        mean: m, the current posterior mean.
        covariance: V, its covariance.

    Returns:
        Shares that add up to one; None if they would be too large.
    """
    values, axes = np.linalg.eigh(0.5 * (covariance + covariance.T))
    root = axes * np.sqrt(np.maximum(values, 0.0))
    moves = np.stack([_move(residual, mean, root) for residual in residuals])
    gram = moves @ moves.T
    size = float(np.trace(gram))
    if not np.isfinite(size) or size <= 0:
        return None
    raw = np.linalg.solve(gram + RIDGE * size * np.eye(len(gram)), np.ones(len(gram)))
    shares: np.ndarray = raw / raw.sum()
    return shares if np.isfinite(shares).all() and np.abs(shares).sum() <= LARGEST else None


def combined(shares: np.ndarray, sites: Sequence[GaussianSite]) -> GaussianSite:
    """sum_j a_j t_j."""
    return GaussianSite(
        sum((a * site.eta for a, site in zip(shares, sites, strict=True)), np.zeros_like(sites[0].eta)),
        sum((a * site.precision for a, site in zip(shares, sites, strict=True)), np.zeros_like(sites[0].precision)),
    )


def positive(total: GaussianSite) -> bool:
    """Whether a precision is positive semi-definite, up to rounding."""
    values = np.linalg.eigvalsh(total.precision)
    return bool(values[0] >= -1e-8 * max(abs(values[-1]), 1e-300))


def _move(residual: GaussianSite, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Compute how the posterior would move, in coordinates in which its covariance, root root', is the identity."""
    shift = root.T @ (residual.eta - residual.precision @ mean)
    return np.concatenate([shift, (root.T @ residual.precision @ root).ravel() / np.sqrt(2)])
