"""Diagnostics of Markov chains: rank-normalised split R-hat, bulk ESS and E-BFMI (Vehtari et al. 2021).

Chains are split in halves, so that a drift within a chain counts as disagreement. Values are replaced by normal scores
of their ranks over all chains, z = Phi^-1((rank - 3/8) / (S + 1/4)), so that heavy tails do no harm. It uses NumPy
only.
"""

from __future__ import annotations

import numpy as np


def rhat(draws: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat, the larger of the one for location and the one for spread.

    With W the mean variance within the half chains and B / n the variance of their means,
    R-hat = sqrt(((n - 1) / n W + B / n) / W). Chains that never moved have R-hat NaN.

    Args:
        draws: Chains x draws x d; at least four draws a chain.

    Returns:
        One value for each of the d parameters.
    """
    halves = split_chains(draws)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.fmax(_rhat(normal_scores(halves)), _rhat(normal_scores(folded)))


def bulk_ess(draws: np.ndarray) -> np.ndarray:
    """Effective sample size of the normal scores: how many independent draws would tell the location as well.

    Args:
        draws: Chains x draws x d; at least four draws a chain.

    Returns:
        One value for each of the d parameters. Chains that never moved have ESS NaN.
    """
    return ess(normal_scores(split_chains(draws)))


def ess(chains: np.ndarray) -> np.ndarray:
    """S / tau with tau = 1 + 2 sum_t rho_t, the sum cut off by Geyer's initial monotone sequence.

    Args:
        chains: Chains x draws x d, split already if that is wanted.

    Returns:
        One value for each of the d parameters, at most S log10(S) for the S draws of all chains.
    """
    count, length, _ = chains.shape
    covariances = autocovariance(chains)
    within = np.mean(covariances[:, 0], axis=0) * length / (length - 1)
    total = within * (length - 1) / length
    if count > 1:
        total = total + np.var(np.mean(chains, axis=1), axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = 1 - (within - np.mean(covariances, axis=0)) / total  # draws x d
    rho[0] = 1
    even, odd = rho[0 : length - length % 2 : 2], rho[1::2]
    pairs = even + odd  # sums of neighbours: positive and falling for a true chain
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    positive[max((length - 3) // 2, 1) :] = False  # the last lags are all noise; ArviZ and Stan leave them out too
    falling = np.minimum.accumulate(np.where(positive, pairs, 0), axis=0)
    first = np.minimum(np.sum(positive, axis=0), len(pairs) - 1)  # the first pair that is left out
    last = np.maximum(np.take_along_axis(even, first[None], axis=0)[0], 0)
    size = count * length
    tau = np.maximum(-1 + 2 * np.sum(falling, axis=0) + last, 1 / np.log10(size))
    return np.where(total > 0, size / tau, np.nan)


def ebfmi(energy: np.ndarray) -> np.ndarray:
    """The energy's estimated fraction of missing information, sum (E_n - E_n-1)^2 / sum (E_n - mean)^2.

    Args:
        energy: Chains x draws, the Hamiltonian's value at every draw.

    Returns:
        One value for each chain. Below .3 the momenta explore the energies too slowly for the tails to be seen.
    """
    spread = np.sum((energy - energy.mean(axis=1, keepdims=True)) ** 2, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sum(np.diff(energy, axis=1) ** 2, axis=1) / spread


def split_chains(draws: np.ndarray) -> np.ndarray:
    """Twice the chains with half the draws each; the middle draw of an odd number is left out."""
    draws = np.asarray(draws, np.float64)
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def normal_scores(chains: np.ndarray) -> np.ndarray:
    """Every value replaced by the normal score of its rank among all chains; equal values share their mean rank."""
    from scipy.special import ndtri  # imported here: it would take a third of the time of importing Fedstein

    flat = chains.reshape(-1, chains.shape[-1])
    scores = np.empty_like(flat)
    for column in range(flat.shape[1]):
        ordered = np.sort(flat[:, column])
        below = np.searchsorted(ordered, flat[:, column], side="left")
        up_to = np.searchsorted(ordered, flat[:, column], side="right")
        scores[:, column] = ndtri(((below + up_to + 1) / 2 - 0.375) / (len(flat) + 0.25))
    return scores.reshape(chains.shape)


def autocovariance(chains: np.ndarray) -> np.ndarray:
    """Chains x lags x d, each divided by the number of draws, by the fast Fourier transform."""
    length = chains.shape[1]
    centred = chains - chains.mean(axis=1, keepdims=True)
    transformed = np.fft.rfft(centred, 2 * length, axis=1)
    return np.fft.irfft(np.abs(transformed) ** 2, 2 * length, axis=1)[:, :length] / length


def _rhat(chains: np.ndarray) -> np.ndarray:
    length = chains.shape[1]
    within = np.mean(np.var(chains, axis=1, ddof=1), axis=0)
    between = np.var(np.mean(chains, axis=1), axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt((length - 1) / length + between / within)
