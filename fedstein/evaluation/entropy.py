"""The entropy of a predictive distribution and its aleatoric and epistemic parts, in nats.

total      H[ mean_n p(y | x, theta_n) ]
aleatoric  mean_n H[ p(y | x, theta_n) ]      noise that remains when theta is known
epistemic  total - aleatoric                  mutual information of y and theta; more rows would reduce it
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

NODES = 32  # the number of nodes of Gauss-Hermite quadrature
CHUNK = 4_000_000  # numbers in memory at once


class Entropy(NamedTuple):
    """Entropies of each row, in nats. For a regression they are differential entropies, which may be negative."""

    total: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray


def class_entropy(log_probabilities: np.ndarray) -> Entropy:
    """Entropies of a classification.

    Args:
        log_probabilities: N x rows x classes, of each draw of theta.

    Returns:
        The entropies of each row.
    """
    p = np.exp(log_probabilities)
    mean = p.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = -np.where(mean > 0, mean * np.log(mean), 0.0).sum(axis=1)
        aleatoric = -np.where(p > 0, p * log_probabilities, 0.0).sum(axis=2).mean(axis=0)
    return Entropy(total, aleatoric, total - aleatoric)


def gaussian_entropy(mean: np.ndarray, log_precision: np.ndarray) -> Entropy:
    """Entropies of a regression with Gaussian noise. That of the mixture is an integral, found by quadrature.

    Args:
        mean: N x rows, of each draw of theta.
        log_precision: N x rows.

    Returns:
        The entropies of each row.
    """
    aleatoric = (0.5 * (math.log(2 * math.pi) + 1) - 0.5 * log_precision).mean(axis=0)
    count, rows = mean.shape
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    step = max(1, CHUNK // (count * count * NODES))
    total = np.empty(rows)
    for start in range(0, rows, step):
        m, g = mean[:, start : start + step], log_precision[:, start : start + step]
        y = m[:, None] + np.exp(-0.5 * g)[:, None] * nodes[None, :, None]  # N x nodes x rows
        each = 0.5 * (g - math.log(2 * math.pi)) - 0.5 * np.exp(g) * (y[:, :, None] - m) ** 2  # N x nodes x N x rows
        top = each.max(axis=2)
        log_density = top + np.log(np.exp(each - top[:, :, None]).mean(axis=2))
        total[start : start + step] = -np.einsum("k,nkr->r", weights, log_density) / count
    return Entropy(total, aleatoric, total - aleatoric)
