"""The distance of particles from the true posterior: offsets of the mean, ratios of standard deviations, and KSD."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedstein import stein
from fedstein.models import Model
from fedstein.studies.reference.target import Pooled, score

AGREES = 0.1  # intervals count as the same up to this many posterior sds
SETS = 10  # the number of sets of draws to average over, because a single set is too noisy


def mean_offsets(particles: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Compute (mean of the particles - posterior mean) / posterior sd for each parameter.

    Args:
        particles: N x d.
        mean: The posterior means, d.
        sd: The posterior standard deviations, d.

    Returns:
        The offsets, d.
    """
    return (np.mean(particles, axis=0, dtype=np.float64) - mean) / sd


def sd_ratios(particles: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Compute (sd of the particles, with n - 1) / posterior sd for each parameter. 0 means collapse, 1 is correct.

    Args:
        particles: N x d.
        sd: The posterior standard deviations, d.

    Returns:
        The ratios, d.
    """
    return np.std(particles, axis=0, ddof=1, dtype=np.float64) / sd


def ksd_to(target: Pooled, particles: np.ndarray) -> float:
    """Compute the KSD of the particles to the posterior, with the score of all rows and the paper's median bandwidth.

    Args:
        target: The posterior.
        particles: N x d.

    Returns:
        The KSD, a squared norm.
    """
    particles = np.asarray(particles, np.float64)
    with jax.enable_x64(True):
        return float(stein.ksd(jnp.asarray(particles), jnp.asarray(score(target, particles))))


def weights_of(model: Model) -> np.ndarray:
    """Return which parameters the medians and extremes are over, as d flags.

    These are the weights: the block that is Gaussian given the others. The others, such as log xi, describe the prior
    and the noise. All parameters count if the model has no such block.
    """
    form = model.gaussian_given
    if form is None:
        return np.ones(model.dim, bool)
    return np.repeat(np.arange(len(model.widths)) == form.block, model.widths)


def log_xi_of(model: Model) -> int | None:
    """Return the number of the parameter log xi of a model that has weights with a common precision xi, else None."""
    form = model.gaussian_given
    if form is None or form.block != 0 or len(model.widths) < 2 or model.widths[1] != 1:
        return None
    return model.widths[0]


def distance(target: Pooled, particles: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> dict[str, Any]:
    """Compute all distances. Parameters that are no weights, such as log xi, are reported separately.

    Args:
        target: The posterior.
        particles: N x d.
        mean: The posterior means, d.
        sd: The posterior standard deviations, d.

    Returns:
        The entry ``particles`` of ``reference.json``.
    """
    ours = np.asarray(np.mean(particles, axis=0, dtype=np.float64))
    spread = np.asarray(np.std(particles, axis=0, ddof=1, dtype=np.float64))
    moments = compare_moments(target, ours, spread, mean, sd)
    return {"count": len(particles), **moments, "ksd": ksd_to(target, particles)}


def compare_moments(
    target: Pooled, ours: np.ndarray, spread: np.ndarray, mean: np.ndarray, sd: np.ndarray
) -> dict[str, Any]:
    """Compare means and standard deviations with those of the posterior.

    Args:
        target: The posterior.
        ours: The means to judge, d.
        spread: The standard deviations to judge, d.
        mean: The posterior means, d.
        sd: The posterior standard deviations, d.

    Returns:
        ``mean_offset`` and ``sd_ratio`` over the weights and for ``each`` parameter, and ``within``, the number of
        weights whose mean is at most AGREES sds off and whose sd is right to that share, of ``weights``.
    """
    offsets, ratios = (ours - mean) / sd, spread / sd
    weights, log_xi = weights_of(target.model), log_xi_of(target.model)
    far = np.abs(offsets)
    good = (far <= AGREES) & (np.abs(ratios - 1) <= AGREES)
    return {
        "mean_offset": {
            "median": float(np.median(far[weights])),
            "max": float(np.max(far[weights])),
            "log_xi": None if log_xi is None else float(far[log_xi]),
            "each": offsets.tolist(),
        },
        "sd_ratio": {
            "min": float(np.min(ratios[weights])),
            "median": float(np.median(ratios[weights])),
            "max": float(np.max(ratios[weights])),
            "log_xi": None if log_xi is None else float(ratios[log_xi]),
            "each": ratios.tolist(),
        },
        "within": int(np.sum(good[weights])),
        "weights": int(np.sum(weights)),
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
        names = [name for name in each[0][part] if name != "each" and each[0][part][name] is not None]
        scale[part] = {name: float(np.mean([one[part][name] for one in each])) for name in names}
    return scale
