"""Scores of a run's particles, quoted draws and site Gaussian against the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedstein.inference.sites.gaussian import SiteGaussian
from fedstein.posterior import Posterior
from fedstein.studies.reference.agreement import central_interval, describe_intervals, energy_test
from fedstein.studies.reference.distance import compare_moments, distance, distance_of_draws, ksd_to, weights_of
from fedstein.studies.reference.nuts import ESS, RHAT, Diagnostics
from fedstein.studies.reference.target import Pooled

KEPT = 1000  # the number of draws to keep, evenly thinned
POINTS = 400  # the number of draws, evenly thinned, that take part in KSD and energy test
MOST, HALF = 0.9, 0.5  # shares of the weights with the right interval: "agree", "partly agree"
NORMAL = 1.6448536269514722  # the 95% point of the standard normal distribution


@dataclass(frozen=True)
class Reference:
    """The part of the chains that is kept.

    Attributes:
        mean: The posterior means, d.
        sd: The posterior standard deviations, d.
        interval: The central 90% intervals of all draws, d x 2.
        draws: Up to KEPT draws, evenly thinned.
        diagnostics: The diagnostics of the chains.
    """

    mean: np.ndarray
    sd: np.ndarray
    interval: np.ndarray
    draws: np.ndarray
    diagnostics: Diagnostics


def keep(chains: np.ndarray, diagnostics: Diagnostics) -> Reference:
    """Keep of chains (chains x draws x d) what later comparisons need."""
    theta = chains.reshape(-1, chains.shape[-1])
    kept = thinned(theta, KEPT).astype(np.float32)
    return Reference(theta.mean(axis=0), theta.std(axis=0, ddof=1), central_interval(theta), kept, diagnostics)


def thinned(draws: np.ndarray, count: int) -> np.ndarray:
    """Take at most ``count`` of the draws, evenly spaced."""
    return draws[np.linspace(0, len(draws) - 1, min(count, len(draws))).round().astype(int)]


def score_posterior(target: Pooled, reference: Reference, found: Posterior) -> dict[str, Any]:
    """Score everything that a posterior offers.

    Args:
        target: The posterior of all rows in one place.
        reference: What NUTS says about it.
        found: The federated posterior of the same rows.

    Returns:
        The entries of ``reference.json``: ``particles``, ``draws`` (the scale on which these are read), ``quoted``
        (draws to quote from, None without full sites) and ``gaussian`` (the site Gaussian, None without one).
    """
    measures = (reference.mean, reference.sd)
    particles = np.asarray(found.particles, np.float64)
    quoted = None
    if found.sums is not None:
        quoted = {"trusted": found.trusted, **score_sample(target, reference, found.draws(using="draws"))}
    gaussian = None
    if found.gaussian is not None:
        gaussian = score_gaussian(target, reference, found.gaussian)
    return {
        "particles": {**distance(target, particles, *measures), **_beside(target, reference, particles)},
        "draws": distance_of_draws(target, reference.draws, len(particles), *measures),
        "quoted": quoted,
        "gaussian": gaussian,
    }


def score_sample(target: Pooled, reference: Reference, draws: np.ndarray) -> dict[str, Any]:
    """Score many draws. KSD and energy test take POINTS of them, the moments and intervals all."""
    spread = np.asarray(np.std(draws, axis=0, ddof=1, dtype=np.float64))
    moments = compare_moments(
        target, np.asarray(draws.mean(axis=0, dtype=np.float64)), spread, reference.mean, reference.sd
    )
    few = thinned(draws, POINTS)
    of_nuts = ksd_to(target, thinned(reference.draws, POINTS))
    tested = _beside(target, reference, few, central_interval(draws))
    return {"count": len(draws), **moments, "ksd": ksd_to(target, few), "ksd_of_nuts": of_nuts, **tested}


def score_gaussian(target: Pooled, reference: Reference, gaussian: SiteGaussian) -> dict[str, Any]:
    """Score a Gaussian by its own mean, widths and intervals. KSD and energy test take POINTS draws from it."""
    moments = compare_moments(target, gaussian.mean, gaussian.sd, reference.mean, reference.sd)
    interval = gaussian.mean[:, None] + NORMAL * gaussian.sd[:, None] * np.array([-1.0, 1.0])
    draws = gaussian.draws(POINTS)
    return {**moments, "ksd": ksd_to(target, draws), **_beside(target, reference, draws, interval)}


def _beside(
    target: Pooled, reference: Reference, points: np.ndarray, interval: np.ndarray | None = None
) -> dict[str, Any]:
    """Compute the entries ``interval`` and ``energy``; the intervals are those of the points unless they are given."""
    ours = central_interval(points) if interval is None else interval
    weights = weights_of(target.model)
    return {
        "interval": describe_intervals(ours, reference.interval, reference.draws, weights),
        "energy": energy_test(points, thinned(reference.draws, POINTS), reference.sd),
    }


def verdict(scores: Mapping[str, Any]) -> str:
    """Say in one sentence whether the intervals of a run can be quoted.

    Args:
        scores: The content of ``reference.json``.

    Returns:
        The sentence, without the run's name.
    """
    if not scores["trusted"]:
        return f"no verdict: NUTS itself is not to be trusted here ({doubts_of(scores['nuts'])})"
    name, found = best(scores)
    share = found["within"] / found["weights"]
    agree = "agree" if share >= MOST else "partly agree" if share >= HALF else "do not agree"
    line = f"intervals {agree} with pooled NUTS: {found['within']} of {found['weights']} weights within 10%"
    if name != "draws":
        line += f" (the {name}: this run has no draws to quote from)"
    elif not found["trusted"]:
        line += " (its draws are not to be trusted)"
    return line


def best(scores: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return what intervals are quoted from, by name: draws, else the site Gaussian, else the particles."""
    if scores.get("quoted") is not None:
        return "draws", scores["quoted"]
    if scores.get("gaussian") is not None:
        return "site Gaussian", scores["gaussian"]
    return "particles", scores["particles"]


def doubts_of(nuts: Mapping[str, Any]) -> str:
    """Describe what is wrong with the chains of a reference."""
    divergences, rhat, ess = nuts["divergences"], nuts["max_rhat"], nuts["min_ess"]
    return (
        f"{divergences} divergence{'' if divergences == 1 else 's'}, "
        f"split R-hat up to {rhat:.3f} (wanted: {RHAT}), ESS down to {ess:.0f} (wanted: {ESS:.0f})"
    )
