"""Importance weights, which measure and correct the difference between draws and the posterior that they represent.

Draws theta_s of a proposal q stand for the posterior p when they are weighted by w_s = p(theta_s) / q(theta_s). Clients
know their likelihoods exactly, so a sum of one number a draw and client gives log w_s up to a constant. The largest
weights are smoothed (Pareto smoothed importance sampling, Vehtari et al. 2024): their logarithms are replaced by the
expected order statistics of a generalised Pareto distribution that is fitted to them. Its shape k says what to expect:
up to .7 weighted averages are reliable, beyond that q misses a part of p that matters. This module uses NumPy only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RELIABLE = 0.7  # the largest k for averages that can be relied upon
NEARLY_ALL = 0.99  # the share of draws that count from which k says nothing: the weights are then all but equal
ENOUGH = 400.0  # the least effective sample size of draws to quote from
SHARE = 0.5  # the least share of draws that count if weights only check the draws, which are then used without weights
TAIL = 5  # the fewest weights that a tail is fitted to


@dataclass(frozen=True)
class Weighted:
    """Draws with weights.

    Attributes:
        draws: n x d, float64.
        log_weights: n logarithms of smoothed weights that add up to one.
        k: The shape of the weights' tail; infinite if no weight is finite.
    """

    draws: np.ndarray
    log_weights: np.ndarray
    k: float

    @property
    def weights(self) -> np.ndarray:
        return np.exp(self.log_weights)

    @property
    def ess(self) -> float:
        """1 / sum_s w_s^2: how many independent draws would be worth as much."""
        return effective_size(self.log_weights)

    @property
    def share(self) -> float:
        """The effective sample size divided by the number of draws."""
        return self.ess / len(self.draws)

    @property
    def mean(self) -> np.ndarray:
        return self.weights @ self.draws

    @property
    def covariance(self) -> np.ndarray:
        centred = self.draws - self.mean
        return centred.T @ (self.weights[:, None] * centred)

    @property
    def sd_error(self) -> float:
        """The largest relative Monte Carlo standard error of a standard deviation.

        The variance of a weighted estimate of sd_j, relative to sd_j^2, is about sum_s w_s^2 (z_sj^2 - 1)^2 / 4, where
        z are the draws in standard deviations from their mean. It is large where a few draws, far out or with large
        weights, account for much of a parameter's variance.
        """
        squares = (self.draws - self.mean) ** 2
        variances = self.weights @ squares
        squares = squares / np.where(variances > 0, variances, 1.0)
        return float(np.sqrt(np.max(self.weights**2 @ (squares - 1) ** 2)) / 2)

    @property
    def usable(self) -> bool:
        """Whether weighted averages are better than those without weights, even if there may be too few draws."""
        return self.k <= RELIABLE and self.ess >= ENOUGH / 4

    @property
    def reliable(self) -> bool:
        """Whether the weights have no tail that matters."""
        return tail_is_harmless(self.k, self.ess, len(self.draws))

    def resampled(self, count: int, seed: int = 0) -> np.ndarray:
        """Draws without weights, by systematic resampling, in random order.

        Args:
            count: How many.
            seed: Fixes which, and their order.

        Returns:
            count x d. A draw with a large weight occurs several times.
        """
        rng = np.random.default_rng([seed, 5])
        places = (np.arange(count) + rng.random()) / count
        edges = np.cumsum(self.weights)
        chosen = np.searchsorted(edges / edges[-1], places)
        return self.draws[rng.permutation(np.minimum(chosen, len(self.draws) - 1))]


def weigh(draws: np.ndarray, log_ratios: np.ndarray) -> Weighted:
    """Weight draws.

    Args:
        draws: n x d draws of q.
        log_ratios: n values of log p - log q, up to a constant. A value that is not finite counts as weight zero.

    Returns:
        The draws with smoothed weights.
    """
    ratios = np.where(np.isfinite(log_ratios), log_ratios, -np.inf)
    if not np.isfinite(ratios).any():
        return Weighted(draws, np.full(len(draws), -np.log(max(len(draws), 1))), np.inf)
    smoothed, k = pareto_smoothed(ratios - ratios.max())
    top = smoothed.max()
    return Weighted(draws, smoothed - top - np.log(np.sum(np.exp(smoothed - top))), k)


def tail_is_harmless(k: float | None, ess: float, draws: int) -> bool:
    """Tell whether weighted averages can be relied upon.

    The shape k does not depend on how much the weights vary. If nearly all draws count, no weight is large, and the
    shape of a tail that has no mass is noise.

    Args:
        k: The shape of the tail; None or infinite if there are no weights to rely upon.
        ess: The effective sample size.
        draws: The number of draws.

    Returns:
        Whether k is small enough, or the weights are all but equal.
    """
    if k is None or not k < np.inf:
        return False
    return k <= RELIABLE or ess >= NEARLY_ALL * draws


def effective_size(log_weights: np.ndarray) -> float:
    """(sum w)^2 / sum w^2."""
    shifted = np.exp(log_weights - np.max(log_weights))
    return float(shifted.sum() ** 2 / np.sum(shifted**2))


def pareto_smoothed(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Smooth the largest weights.

    The tail has min(n / 5, 3 sqrt(n)) weights. Those above the largest of the others exceed it by amounts to which a
    generalised Pareto distribution is fitted; they become its quantiles at (i - 1/2) / m, and none becomes larger than
    the largest weight was.

    Args:
        log_weights: n logarithms of weights, the largest zero.

    Returns:
        The smoothed logarithms, not normalised, and k; k is infinite if there is no tail to fit.
    """
    count = len(log_weights)
    size = int(np.ceil(min(0.2 * count, 3 * np.sqrt(count))))
    order = np.argsort(log_weights, kind="stable")
    tail = order[count - size :]
    cut = log_weights[order[count - size - 1]] if size < count else -np.inf
    if size < TAIL or not np.isfinite(cut):
        return log_weights, np.inf
    excess = np.exp(log_weights[tail]) - np.exp(cut)
    if excess[-1] <= 1e-12:  # all weights are equal
        return log_weights, -np.inf
    k, sigma = fit_pareto(np.maximum(excess, 1e-300))
    if not np.isfinite(k):
        return log_weights, np.inf
    places = (np.arange(size) + 0.5) / size
    quantiles = -sigma * np.log1p(-places) if abs(k) < 1e-12 else sigma / k * np.expm1(-k * np.log1p(-places))
    smoothed = log_weights.copy()
    smoothed[tail] = np.minimum(np.log(quantiles + np.exp(cut)), 0.0)
    return smoothed, k


def fit_pareto(excess: np.ndarray) -> tuple[float, float]:
    """Fit a generalised Pareto distribution with location zero (Zhang and Stephens 2009).

    The estimate is the mean of a posterior over theta = -k / sigma on a grid. k is pulled towards 1/2 by the weight of
    ten observations, which steadies it for short tails.

    Args:
        excess: m positive numbers in increasing order.

    Returns:
        k and sigma.
    """
    count = len(excess)
    points = 30 + int(np.sqrt(count))
    grid = 1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    theta = grid / (3 * excess[int(count / 4 + 0.5) - 1]) + 1 / excess[-1]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        shapes = np.mean(np.log1p(-theta[:, None] * excess), axis=1)
        heights = count * (np.log(-theta / shapes) - shapes - 1)
        shares = 1 / np.sum(np.exp(heights - heights[:, None]), axis=1)
    shares = np.where(np.isfinite(shares) & (shares > 10 * np.finfo(float).eps), shares, 0.0)
    if not shares.any():
        return np.inf, np.nan
    theta_hat = np.sum(theta * shares) / np.sum(shares)
    shape = float(np.mean(np.log1p(-theta_hat * excess)))
    return (count * shape + 5) / (count + 10), -shape / theta_hat
