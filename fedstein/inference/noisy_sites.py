"""The posterior from noisy releases: the noise is known, so the posterior includes it.

Client k has released, at visits t = 1..v_k at points theta_kt, gradients g_kt = grad log p_k(theta_kt) + e_kt, and once
its second moments. Let theta be the true coefficients, A_k(theta) = sum_i mean(f_i) (x) x_i the expected sum of y x and
Lambda(theta) its derivative. For a canonical generalised linear model the gradient at a point is sum y x - A_k(point):

    sum_k (1 / v_k) sum_t [g_kt + A_k(theta_kt)]  =  A(theta) + z + e,
    z ~ N(0, Lambda(theta))  (rows are a sample),    e ~ N(0, S)  (the noise),   S = sum_k s^2 / v_k I.

z is the same at all visits, because the rows are; the noise is averaged over visits. What is observed is thus a vector
with mean A(theta) and covariance Lambda + S, not Lambda. Expanded at m, with r the observed minus A(m), the likelihood
of theta is exp(-(r - Lambda (theta - m))' (Lambda + S)^-1 (...) / 2): a Gaussian site with

    precision = Lambda (Lambda + S)^-1 Lambda,      eta = Lambda (Lambda + S)^-1 (r + Lambda m).

Without noise that is the usual site, (Lambda, r + Lambda m). If S is much larger than Lambda, the precision falls to
Lambda S^-1 Lambda, and the prior takes over. m is the posterior mean, found by repeating the expansion. A and Lambda
are sums over synthetic rows with the released moments (``fedstein.privacy.synthetic``). Clients that were asked at the
same point are summed first. Not included: the error of A and Lambda themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedstein.inference.grid_moments import grid_gaussian
from fedstein.inference.natural import GaussianSite, no_site, unpacked
from fedstein.inference.sites.base import Own
from fedstein.inference.sites.gaussian import SiteGaussian
from fedstein.models.base import Model
from fedstein.privacy.mechanism import Family
from fedstein.privacy.synthetic import SyntheticRows, synthetic_rows

STEPS = 40
SETTLED = 1e-3  # posterior sds
FULL_STEPS = 2  # before steps are damped
DAMPING = 0.7
CAREFUL_STEPS, CAREFUL_STEP, SHORTEST, GROWTH = 200, 0.4, 0.02, 1.3  # if the steps above do not converge
LOST = 50.0  # posterior sds; so far from a fixed point there is none
SMALLEST = 1e-9  # a variance that makes a matrix invertible
RELEASED = ("gradients", "points", "moments", "visits")


class Scales(NamedTuple):
    """Standard deviations of the noise in one release of one client."""

    gradient: float
    moments: float


class Group(NamedTuple):
    """Clients that were asked at one point, with the synthetic rows of their summed moments."""

    point: np.ndarray
    rows: SyntheticRows


class Observed(NamedTuple):
    """All releases combined: the averaged gradients, the points at which they were taken, and the noise variance."""

    gradient: np.ndarray
    groups: list[Group]
    variance: float

    def score(self, family: Family, points: np.ndarray) -> np.ndarray:
        """The observed minus A(theta): the estimate of the likelihood's score at each of n points, n x width."""
        asked = sum((group.rows.mean(family, group.point) for group in self.groups), np.zeros(points.shape[1]))
        expected = [sum(group.rows.mean(family, point) for group in self.groups) for point in points]
        return self.gradient + asked - np.asarray(expected)


def observe(accepted: Mapping[int, Own], inputs: int, scales: Scales) -> Observed:
    """Put the releases together.

    Args:
        accepted: Of every client its ``RELEASED`` arrays.
        inputs: The width of a row, the intercept included.
        scales: The noise of a release.

    Returns:
        The observation.
    """
    gradient: Any = 0.0
    at: dict[bytes, list[tuple[int, float]]] = {}
    points: dict[bytes, np.ndarray] = {}
    variance = 0.0
    for client in sorted(accepted):
        site = {name: np.asarray(accepted[client][name]) for name in RELEASED}
        visits = int(site["visits"])
        if not visits:
            continue
        gradient = gradient + site["gradients"][:visits].astype(np.float64).sum(axis=0) / visits
        variance += scales.gradient**2 / visits
        for point in site["points"][:visits].astype(np.float64):
            at.setdefault(point.tobytes(), []).append((client, 1 / visits))
            points[point.tobytes()] = point
    found: dict[tuple[tuple[int, float], ...], SyntheticRows] = {}
    groups = []
    for key, members in at.items():
        share = tuple(members)
        if share not in found:
            moments = sum(weight * unpacked(np.asarray(accepted[k]["moments"], float), inputs) for k, weight in share)
            noise = scales.moments * float(np.sqrt(sum(weight**2 for _, weight in share)))
            found[share] = synthetic_rows(np.asarray(moments), noise)
        groups.append(Group(points[key], found[share]))
    return Observed(np.asarray(gradient, np.float64), groups, variance)


def expand_at(observed: Observed, family: Family, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """eta and precision of the coefficients' site, expanded at beta; see the module."""
    r, curvature = observed.gradient.copy(), np.zeros((len(beta), len(beta)))
    totals = {id(group.rows): group.rows for group in observed.groups}
    counts = {key: sum(id(group.rows) == key for group in observed.groups) for key in totals}
    for key, rows in totals.items():
        r -= counts[key] * rows.mean(family, beta)
        curvature += counts[key] * rows.information(family, beta)
    for group in observed.groups:
        r += group.rows.mean(family, group.point)
    if observed.variance == 0:
        return r + curvature @ beta, curvature
    shrink = np.linalg.solve(curvature + observed.variance * np.eye(len(beta)), curvature)
    precision = curvature @ shrink
    return shrink.T @ (r + curvature @ beta), 0.5 * (precision + precision.T)


def misfit(observed: Observed, family: Family, beta: np.ndarray) -> float:
    """Minus twice the log-density of the observation at coefficients beta, up to a constant."""
    curvature = sum((group.rows.information(family, beta) for group in observed.groups), np.zeros((len(beta),) * 2))
    covariance = curvature + max(observed.variance, SMALLEST) * np.eye(len(beta))
    away = observed.score(family, beta[None, :])[0]
    return float(away @ np.linalg.solve(covariance, away) + np.linalg.slogdet(covariance)[1])


class NoisyPosterior(NamedTuple):
    """The result of the search for the posterior's mean.

    Attributes:
        site: eta and precision, d and d x d: the sites' sum with the noise in it.
        gaussian: The Gaussian with the mean and covariance of prior times sites.
        to_go: How far the mean is from the point at which the sites were expanded, in posterior sds. The search has
            settled if it is below ``SETTLED``.
    """

    site: GaussianSite
    gaussian: SiteGaussian
    to_go: float = 0.0


def noisy_posterior(
    model: Model, family: Family, accepted: Mapping[int, Own], scales: Scales, start: np.ndarray
) -> NoisyPosterior:
    """The sites' sum with the noise in it, and the posterior's moments.

    Args:
        model: A model whose block 0 holds the coefficients.
        family: Its likelihood.
        accepted: What clients have released.
        scales: The noise of a release.
        start: Where to begin, d.

    Returns:
        Both, and whether the search for the mean has settled.
    """
    inputs = model.widths[0] // family.predictors
    return posterior_of(model, family, observe(accepted, inputs, scales) if accepted else None, start)


def posterior_of(model: Model, family: Family, observed: Observed | None, start: np.ndarray) -> NoisyPosterior:
    """``noisy_posterior`` of what was observed; None before the first release."""
    site = no_site(model.dim)
    if observed is None:
        return NoisyPosterior(site, grid_gaussian(model, *site))
    first = np.asarray(start, np.float64)
    mean = first.copy()
    for step in range(STEPS):
        site, found = _expanded(model, family, observed, mean)
        move = found.mean - mean
        if (to_go := float(np.max(np.abs(move) / found.sd))) < SETTLED:
            return NoisyPosterior(site, found, to_go)
        mean += move if step < FULL_STEPS else DAMPING * move
    return _careful(model, family, observed, first)


def _expanded(model: Model, family: Family, observed: Observed, mean: np.ndarray) -> tuple[GaussianSite, SiteGaussian]:
    """The site expanded at a mean, and the moments of the prior times this site."""
    width, site = model.widths[0], no_site(model.dim)
    site.eta[:width], site.precision[:width, :width] = expand_at(observed, family, mean[:width])
    return site, grid_gaussian(model, *site)


def _careful(model: Model, family: Family, observed: Observed, mean: np.ndarray) -> NoisyPosterior:
    """Repeat the expansion in short steps, if long ones oscillate: with few rows, or separable ones.

    Steps are at most a posterior sd. They are halved if the direction turns, and grow if it does not. If no mean
    reproduces itself, as with almost no noise and synthetic rows that cannot have given the observation, the mean under
    which the observation is most likely is taken.
    """
    width, share, last, least = model.widths[0], CAREFUL_STEP, np.zeros_like(mean), np.inf
    best = NoisyPosterior(*_expanded(model, family, observed, mean), np.inf)
    for _ in range(CAREFUL_STEPS):
        site, found = _expanded(model, family, observed, mean)
        move = found.mean - mean
        far = float(np.max(np.abs(move) / found.sd))
        if far < SETTLED:
            return NoisyPosterior(site, found, far)
        if (now := misfit(observed, family, mean[:width])) < least:
            least, best = now, NoisyPosterior(site, found, far)
        if far > LOST:
            break
        share = max(share / 2, SHORTEST) if move @ last < 0 else min(share * GROWTH, DAMPING)
        mean, last = mean + min(share, 1 / far) * move, move
    return best
