"""The distance of particles from the true posterior: offsets of the mean, ratios of standard deviations, and KSD."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedstein import stein
from fedstein.studies.reference.target import Pooled, score

SETS = 10  # the number of sets of draws to average over, because a single set is too noisy


def mean_offsets(particles: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Compute (mean of the particles - posterior mean) / posterior sd for each parameter.

    Args:
        particles: N x d.
        mean: The posterior means, d.
        sd: The posterior standard deviations, d.
    """
    return (np.mean(particles, axis=0, dtype=np.float64) - mean) / sd


def sd_ratios(particles: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Compute (sd of the particles, with n - 1) / posterior sd for each parameter. 0 means collapse, 1 is correct.

    Args:
        particles: N x d.
        sd: The posterior standard deviations, d.
    """
    return np.std(particles, axis=0, ddof=1, dtype=np.float64) / sd


def ksd_to(target: Pooled, particles: np.ndarray) -> float:
    """Compute the KSD of the particles to the posterior, with the score of all rows and the paper's median bandwidth.

    Args:
        target: The posterior.
        particles: N x d.
    """
    particles = np.asarray(particles, np.float64)
    with jax.enable_x64(True):
        return float(stein.ksd(jnp.asarray(particles), jnp.asarray(score(target, particles))))


def distance(target: Pooled, particles: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> dict[str, Any]:
    """Compute all distances. The last parameter, log xi, is reported separately from the weights.

    Args:
        target: The posterior, with theta = [w, log xi].
        particles: N x d.
        mean: The posterior means, d.
        sd: The posterior standard deviations, d.

    Returns:
        The entry ``particles`` of ``reference.json``.
    """
    offsets, ratios = mean_offsets(particles, mean, sd), sd_ratios(particles, sd)
    weights, log_xi = np.abs(offsets[:-1]), float(abs(offsets[-1]))
    return {
        "count": len(particles),
        "mean_offset": {
            "median": float(np.median(weights)),
            "max": float(np.max(weights)),
            "log_xi": log_xi,
            "each": offsets.tolist(),
        },
        "sd_ratio": {
            "min": float(np.min(ratios[:-1])),
            "median": float(np.median(ratios[:-1])),
            "max": float(np.max(ratios[:-1])),
            "log_xi": float(ratios[-1]),
            "each": ratios.tolist(),
        },
        "ksd": ksd_to(target, particles),
    }


def distance_of_draws(
    target: Pooled, draws: np.ndarray, count: int, mean: np.ndarray, sd: np.ndarray
) -> dict[str, Any] | None:
    """Compute the same distances for draws of the reference itself, averaged over disjoint sets.

    They are the scale on which the distances of particles are read.

    Args:
        target: The posterior.
        draws: Draws of the reference.
        count: The number of draws in each set.
        mean: The posterior means, d.
        sd: The posterior standard deviations, d.

    Returns:
        The entry ``draws`` of ``reference.json``, or None if there are fewer than ``count`` draws.
    """
    sets = min(SETS, len(draws) // count)
    if not sets:
        return None
    each = [distance(target, draws[i::sets][:count], mean, sd) for i in range(sets)]
    scale: dict[str, Any] = {"count": count, "sets": sets, "ksd": float(np.mean([one["ksd"] for one in each]))}
    for part in ("mean_offset", "sd_ratio"):
        names = [name for name in each[0][part] if name != "each"]
        scale[part] = {name: float(np.mean([one[part][name] for one in each])) for name in names}
    return scale
