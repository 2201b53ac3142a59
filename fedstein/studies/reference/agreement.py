"""Agreement of intervals and samples with the reference: coverage, widths, and an energy test.

An interval of ours *covers* the share of the reference's draws that lie in it, which should be its level. The energy
distance between samples x and y, with every parameter divided by its posterior standard deviation, is

    E = 2 mean |x_i - y_j| - mean |x_i - x_i'| - mean |y_j - y_j'|,

zero for equal distributions and otherwise positive (Szekely and Rizzo 2013). Its p-value is that of a permutation test:
the share of random divisions of all points into two such samples that lie at least as far apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.9  # the level of the intervals that are compared
PERMUTATIONS = 499

Floats = NDArray[np.float64]


def central_interval(points: np.ndarray, level: float = LEVEL) -> Floats:
    """Compute the central interval of each parameter, d x 2.

    Args:
        points: Draws or particles, N x d.
        level: The probability that an interval holds.

    Returns:
        The lower and the upper end of each interval, d x 2.
    """
    tail = (1 - level) / 2
    return np.asarray(np.quantile(np.asarray(points, np.float64), (tail, 1 - tail), axis=0).T)


def coverage(interval: np.ndarray, draws: np.ndarray) -> Floats:
    """Compute the share of the reference's draws inside of each interval.

    Args:
        interval: d x 2.
        draws: Draws of the reference, n x d.

    Returns:
        d shares.
    """
    return np.asarray(np.mean((draws >= interval[:, 0]) & (draws <= interval[:, 1]), axis=0))


def describe_intervals(
    interval: np.ndarray, reference: np.ndarray, draws: np.ndarray, weights: np.ndarray
) -> dict[str, Any]:
    """Describe 90% intervals: what they cover, and how wide they are in widths of the reference's.

    Args:
        interval: The intervals to judge, d x 2.
        reference: Those of the reference, d x 2.
        draws: Draws of the reference, n x d.
        weights: Which parameters are weights; the numbers are over these.

    Returns:
        The entry ``interval`` of ``reference.json``.
    """
    shares = coverage(interval, draws)
    ratios = np.diff(interval, axis=1)[:, 0] / np.diff(reference, axis=1)[:, 0]
    described: dict[str, Any] = {"level": LEVEL}
    for name, values in (("coverage", shares), ("width_ratio", ratios)):
        over = {key: float(getattr(np, key)(values[weights])) for key in ("min", "median", "max")}
        described[name] = {**over, "each": values.tolist()}
    return described


def energy_test(points: np.ndarray, draws: np.ndarray, sd: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """Test whether two samples come from one distribution.

    Args:
        points: The sample to judge, n x d.
        draws: Draws of the reference, m x d.
        sd: The posterior standard deviations, d.
        seed: The seed of the permutations.

    Returns:
        ``distance``, ``p_value``, and the sizes ``points`` and ``draws`` of the samples.
    """
    both = np.concatenate([points, draws]).astype(np.float64) / sd
    apart = _distances(both)
    ours = np.zeros(len(both))
    ours[: len(points)] = 1
    generator = np.random.default_rng(seed)
    memberships = np.stack([ours, *(generator.permutation(ours) for _ in range(PERMUTATIONS))])
    energies = _energies(apart, memberships)
    beyond = np.sum(energies[1:] >= energies[0] * (1 - 1e-12))
    return {
        "distance": float(energies[0]),
        "p_value": float((1 + beyond) / (1 + PERMUTATIONS)),
        "points": len(points),
        "draws": len(draws),
    }


def _distances(points: Floats) -> Floats:
    squares = np.sum(points**2, axis=1)
    return np.sqrt(np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0.0))


def _energies(apart: Floats, memberships: Floats) -> Floats:
    """Compute the energy distance for each division (a row of ones for the first sample and zeros for the second)."""
    first, second = memberships, 1 - memberships
    n, m = first[0].sum(), second[0].sum()
    reach = first @ apart
    within = np.sum(reach * first, axis=1) / n**2
    between = np.sum(reach * second, axis=1) / (n * m)
    other = np.sum((second @ apart) * second, axis=1) / m**2
    return np.asarray(2 * between - within - other)
