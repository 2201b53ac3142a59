"""What the indicators are worth in a round: rank correlations, the paper's Delta, what clipping does. NumPy only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedstein.selection import proportional


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's; ties get their mean rank. NaN where one of them is constant."""
    ranks = [_ranks(values) - (len(values) + 1) / 2 for values in (a, b)]
    scale = np.sqrt(np.sum(ranks[0] ** 2) * np.sum(ranks[1] ** 2))
    return float(ranks[0] @ ranks[1] / scale) if scale > 0 else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def distribution(indicators: np.ndarray) -> np.ndarray:
    """P_k as the schemes draw by it (eqn:definition1, eqn:definition2): negative indicators count as zero."""
    drawn = proportional(range(len(indicators)), indicators.tolist(), np.full(len(indicators), 0.5))
    return np.array(drawn.probabilities)


def gain(values: np.ndarray, probabilities: np.ndarray) -> float:
    """sum_k P_k v_k - (1/K) sum_k v_k: what drawing by P brings over drawing at random."""
    return float(probabilities @ values - np.mean(values))


class Delta(NamedTuple):
    """Delta / eps of section III for one indicator a: sum_k a_k P_k - (1/K) sum_k a_k.

    With P_k = a_k / sum_m a_m and all a_k >= 0 it is K Var(a) / sum_m a_m, so never negative. With negative a_k the
    P_k of the paper are no distribution: ``as_written`` keeps them all the same and has the sign of sum_m a_m;
    ``clipped`` uses the P_k that the scheme draws by, and is never negative either: the mean of the positive a_k,
    weighted in their own favour, is not below the mean of all.
    """

    clipped: float
    as_written: float
    negative: int  # indicators below zero
    total: float  # sum_m a_m, the paper's normaliser
    kept: float  # the same over the positive ones, the normaliser that is used

    @classmethod
    def of(cls, indicators: np.ndarray) -> Delta:
        total = float(np.sum(indicators))
        as_written = gain(indicators, indicators / total) if total else float("nan")
        return cls(
            gain(indicators, distribution(indicators)),
            as_written,
            int(np.sum(indicators < 0)),
            total,
            float(np.sum(np.maximum(indicators, 0))),
        )
