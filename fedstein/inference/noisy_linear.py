"""Linear regression from noisy sums: the posterior of coefficients and noise, with the noise of the releases in it.

Clients release g = sum w y x and s = sum w y^2, averaged over visits, and M = sum w x x'. With noise e, e_s and E, true
coefficients b and noise precision gamma, what is observed obeys

    g + e  =  (M + E) b + z + e - E b,      z ~ N(0, M / gamma),   e ~ N(0, S),   E b ~ N(0, S_M),
    S_M = s_M^2 / 2 (|b|^2 I + b b')        (E has standard deviation s_M on the diagonal, s_M / sqrt(2) elsewhere).

With Q = (M / gamma + S + S_M)^-1 the coefficients have the Gaussian site of precision M Q M and eta M Q (g + e). The
residual sum of squares at b is linear in the noises, which the residual r = (g + e) - (M + E) b tells of:

    R(b)  =  s - 2 b'(g + e) + b'(M + E) b  +  L,      L = 2 b'e - b'E b,     Cov(r, L) = (2 S + S_M) b,

so that E[L | r] = b' (2 S + S_M) Q r. Its average over the posterior of b estimates n / gamma with n = sum w, which
gives a Gaussian site of log gamma with the variance 2 / n + (Var(L | r) + Var(e_s) + Var_b) / R^2, where Var_b is that
of the estimate over the posterior of b. Sites and posterior are repeated until they agree. gamma is fixed at its
posterior mean within Q.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedstein.inference import hyper_grid
from fedstein.inference.natural import GaussianSite, no_site, unpacked
from fedstein.inference.sites.base import Own
from fedstein.inference.sites.gaussian import SiteGaussian
from fedstein.models.base import Model
from fedstein.privacy.synthetic import SMALLEST_WEIGHT, cleaned

STEPS = 30
SETTLED = 1e-3  # posterior sds
SMALLEST_SHARE = 0.05  # of the sum of squares' noise: the smallest residual sum of squares that is believed


class LinearSums(NamedTuple):
    """The sum of the clients' releases, and the variances of its noise."""

    gradient: np.ndarray  # g
    squares: float  # s
    moments: np.ndarray  # M
    variance: float  # of an entry of g
    squares_variance: float
    moments_variance: float  # of a diagonal entry of M


def add_releases(
    accepted: Mapping[int, Own], inputs: int, weight: float, gradient_sd: float, moments_sd: float
) -> LinearSums:
    """Sum what clients have released.

    Args:
        accepted: Of every client its gradients, moments and visits.
        inputs: The width of a row, the intercept included.
        weight: q, what the sum of squares is multiplied by in a release.
        gradient_sd: The noise of an entry of a gradient.
        moments_sd: The noise of a diagonal entry of the moments.

    Returns:
        The sums.
    """
    total, moments, variance, matrices = np.zeros(inputs + 1), np.zeros((inputs, inputs)), 0.0, 0
    for client in sorted(accepted):
        visits = int(accepted[client]["visits"])
        if visits:
            total += np.asarray(accepted[client]["gradients"], np.float64)[:visits].mean(axis=0)
            moments += unpacked(np.asarray(accepted[client]["moments"], np.float64), inputs)
            variance, matrices = variance + gradient_sd**2 / visits, matrices + 1
    return LinearSums(
        total[:-1], float(total[-1]) / weight, moments, variance, variance / weight**2, matrices * moments_sd**2
    )


def linear_posterior(model: Model, sums: LinearSums | None) -> tuple[GaussianSite, SiteGaussian]:
    """The sites' sum with the noise in it, and the posterior's moments.

    Args:
        model: Linear regression: blocks of coefficients, log xi and log gamma.
        sums: What was released; None before the first release.

    Returns:
        eta and precision, d and d x d, and the Gaussian with the mean and covariance of prior times sites.
    """
    site = no_site(model.dim)
    found = _moments(model, site)
    if sums is None or not sums.moments.any():
        return site, found
    width = len(sums.gradient)
    matrix = cleaned(sums.moments, float(np.sqrt(sums.moments_variance)))
    rows = max(float(matrix[-1, -1]), SMALLEST_WEIGHT)
    mean, covariance = np.zeros(width), np.zeros((width, width))
    gamma = rows / max(sums.squares, SMALLEST_SHARE * float(np.sqrt(sums.squares_variance)), 1e-12)
    for _ in range(STEPS):
        square = covariance + np.outer(mean, mean)
        of_moments = 0.5 * sums.moments_variance * (np.trace(square) * np.eye(width) + square)
        noise = sums.variance * np.eye(width)
        shrink = np.linalg.solve(matrix / gamma + noise + of_moments, matrix)  # Q M
        precision = matrix @ shrink
        site.precision[:width, :width] = 0.5 * (precision + precision.T)
        site.eta[:width] = shrink.T @ sums.gradient
        residual, spread = _residual_squares(sums, matrix, mean, covariance, 2 * noise + of_moments, gamma)
        centre, variance = np.log(rows / residual), 2 / rows + spread / residual**2
        site.precision[-1, -1], site.eta[-1] = 1 / variance, centre / variance
        found = _moments(model, site)
        moved = max(
            float(np.max(np.abs(found.mean[:width] - mean) / found.sd[:width])),
            abs(float(found.mean[-1]) - np.log(gamma)) / float(found.sd[-1]),
        )
        mean, covariance, gamma = found.mean[:width], found.covariance[:width, :width], float(np.exp(found.mean[-1]))
        if moved < SETTLED:
            break
    return site, found


def _residual_squares(
    sums: LinearSums, matrix: np.ndarray, mean: np.ndarray, covariance: np.ndarray, cross: np.ndarray, gamma: float
) -> tuple[float, float]:
    """The estimate of sum w (y - b'x)^2 at the true coefficients, and the variance that noise gives it."""
    width = len(mean)
    noise = sums.variance * np.eye(width)
    inner = np.linalg.inv(matrix / gamma + cross - noise)  # cross is 2 S + S_M, so this is Q
    plain = sums.squares - 2 * mean @ sums.gradient + mean @ matrix @ mean + np.sum(matrix * covariance)
    left, mixed = sums.gradient - matrix @ mean, cross @ inner
    told = mean @ mixed @ left - np.trace(mixed @ matrix @ covariance)
    slope = mixed @ left - 2 * left - matrix @ mixed.T @ mean  # of the estimate, by the coefficients
    linear = 4 * sums.variance * mean @ mean + sums.moments_variance * (mean @ mean) ** 2
    known = cross @ mean
    spread = sums.squares_variance + max(linear - known @ inner @ known, 0.0) + slope @ covariance @ slope
    return max(plain + told, SMALLEST_SHARE * float(np.sqrt(spread)), 1e-12), spread


def _moments(model: Model, site: GaussianSite) -> SiteGaussian:
    """The Gaussian with the moments of prior times site."""
    mean, covariance = hyper_grid.moments(model, site, hyper_grid.tabulate(model, site))
    return SiteGaussian(mean, np.linalg.inv(covariance))
