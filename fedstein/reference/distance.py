"""How far particles are from the true posterior: means in its standard deviations, ratios of spreads, KSD."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedstein import stein
from fedstein.reference.target import Pooled, score

SETS = 10  # how many sets of draws stand for "as many exact draws": one alone is too noisy a scale


def mean_offsets(particles: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """(mean of the particles - posterior mean) / posterior sd, for each parameter."""
    return (np.mean(particles, axis=0, dtype=np.float64) - mean) / sd


def sd_ratios(particles: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Standard deviation of the particles (n - 1) / posterior sd, for each parameter; 0 is collapse, 1 is right."""
    return np.std(particles, axis=0, ddof=1, dtype=np.float64) / sd


def ksd_to(target: Pooled, particles: np.ndarray) -> float:
    """KSD of the particles to the posterior, with the score of every row and the paper's median bandwidth."""
    particles = np.asarray(particles, np.float64)
    with jax.enable_x64(True):
        return float(stein.ksd(jnp.asarray(particles), jnp.asarray(score(target, particles))))


def distance(target: Pooled, particles: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> dict[str, Any]:
    """All of it; theta = [w, log xi], so that the last parameter stands apart from the weights."""
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
    """The same for ``count`` draws of the reference itself, mean over disjoint sets: the scale to read it by.

    None where there are not that many draws.
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
