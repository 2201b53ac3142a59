"""The value of the indicators in a round: rank correlations, the Delta of the paper, and the effect of clipping.

NumPy only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedstein.selection import proportional


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Compute Spearman's rank correlation. Ties get their mean rank. It is NaN if one of the arrays is constant."""
    ranks = [_ranks(values) - (len(values) + 1) / 2 for values in (a, b)]
    scale = np.sqrt(np.sum(ranks[0] ** 2) * np.sum(ranks[1] ** 2))
    return float(ranks[0] @ ranks[1] / scale) if scale > 0 else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def distribution(indicators: np.ndarray) -> np.ndarray:
    """Compute the P_k that the schemes draw from (eqn:definition1, eqn:definition2).

    Negative indicators count as zero.
    """
    drawn = proportional(range(len(indicators)), indicators.tolist(), np.full(len(indicators), 0.5))
    return np.array(drawn.probabilities)


def gain(values: np.ndarray, probabilities: np.ndarray) -> float:
    """Compute sum_k P_k v_k - (1/K) sum_k v_k: the gain of drawing from P over drawing uniformly."""
    return float(probabilities @ values - np.mean(values))


class Delta(NamedTuple):
    """Delta / eps of section III for one indicator a: sum_k a_k P_k - (1/K) sum_k a_k.

    With P_k = a_k / sum_m a_m and all a_k >= 0 it is K Var(a) / sum_m a_m, so it is never negative. With negative a_k,
    the P_k of the paper are not a distribution. ``as_written`` uses them nevertheless, and has the sign of sum_m a_m.
    ``clipped`` uses the P_k that the scheme draws from. It is never negative either, because the weighted mean of the
    positive a_k is at least the mean of all a_k.
    """

    clipped: float
    as_written: float
    negative: int  # the number of indicators below zero
    total: float  # sum_m a_m, the normaliser of the paper
    kept: float  # the sum over the positive a_m, the normaliser that is used

    @classmethod
    def of(cls, indicators: np.ndarray) -> Delta:
        """Compute both versions for the indicators of all clients."""
        total = float(np.sum(indicators))
        as_written = gain(indicators, indicators / total) if total else float("nan")
        return cls(
            gain(indicators, distribution(indicators)),
            as_written,
            int(np.sum(indicators < 0)),
            total,
            float(np.sum(np.maximum(indicators, 0))),
        )
