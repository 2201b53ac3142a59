"""The success rates of a guesser, the lower bounds on epsilon that they prove, and the rates that epsilon allows.

A guesser sees the messages of a client and says whether a row was among the client's rows. From scores of runs with the
row and of runs without it follow the true and the false positive rate at every threshold. Two lower bounds on epsilon
follow from rates that were counted (Clopper and Pearson's intervals, both of which hold with the stated confidence):

    (epsilon, delta):  TPR <= exp(epsilon) FPR + delta     =>  epsilon >= log((TPR_low - delta) / FPR_high),
    mu-GDP:            TPR <= Phi(Phi^-1(FPR) + mu)        =>  mu >= Phi^-1(TPR_low) - Phi^-1(FPR_high).

The first needs no assumption about the mechanism. It is far from tight if runs are few, because it needs a threshold
with few false positives. The second tests what ledgers claim, that releases together are mu-GDP (Nasr et al. 2023:
"Tight auditing of differentially private machine learning"), and gives the epsilon that belongs to the mu it finds. The
threshold is chosen on half of the runs and counted on the other half, so that choosing it costs nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedstein.privacy.accounting import epsilon_of

CONFIDENCE = 0.95


class Rates(NamedTuple):
    """False and true positive rates at thresholds from the highest score down."""

    false: np.ndarray
    true: np.ndarray


class LowerBounds(NamedTuple):
    """Lower bounds on epsilon; 0 if the scores prove nothing."""

    plain: float  # without an assumption about the mechanism
    gaussian: float  # as the epsilon of the mu below
    mu: float


def rates(without: np.ndarray, member: np.ndarray) -> Rates:
    """The receiver operating characteristic of scores.

    Args:
        without: Scores of runs without the row.
        member: Scores of runs with it; higher scores mean that it was there.

    Returns:
        The rates at every threshold that occurs. Scores that are level change together.
    """
    scores = np.concatenate([without, member])
    order = np.argsort(-scores, kind="stable")
    is_member = np.concatenate([np.zeros(len(without)), np.ones(len(member))])[order]
    last = np.append(np.diff(scores[order]) != 0, True)
    true, false = np.cumsum(is_member)[last], np.cumsum(1 - is_member)[last]
    return Rates(np.append(0.0, false / len(without)), np.append(0.0, true / len(member)))


def area(found: Rates) -> float:
    """The area under the curve: how often a run with the row has a higher score than one without it."""
    return float(np.trapezoid(found.true, found.false))


def true_rate_at(found: Rates, false_rate: float) -> float:
    """The largest true positive rate with at most this false positive rate."""
    return float(found.true[found.false <= false_rate].max())


def interval(hits: np.ndarray | int, trials: int, confidence: float = CONFIDENCE) -> tuple[np.ndarray, np.ndarray]:
    """Clopper and Pearson's interval of a rate; each end fails with half of 1 - confidence.

    Args:
        hits: How often it happened; one number or several.
        trials: How often it was tried.
        confidence: The confidence of both ends together.

    Returns:
        The lower and the upper end.
    """
    from scipy.special import betaincinv

    tail, found = (1 - confidence) / 2, np.asarray(hits, float)
    low = betaincinv(np.maximum(found, 0.5), trials - found + 1, tail)
    high = betaincinv(found + 1, np.maximum(trials - found, 0.5), 1 - tail)
    return np.where(found == 0, 0.0, low), np.where(found == trials, 1.0, high)


def lower_bounds(without: np.ndarray, member: np.ndarray, delta: float, confidence: float = CONFIDENCE) -> LowerBounds:
    """Lower bounds on epsilon from scores of runs with and without a row.

    Args:
        without: Scores of runs without the row.
        member: Scores of runs with it.
        delta: delta of the promise.
        confidence: How surely each bound holds.

    Returns:
        The bounds.
    """
    from scipy.special import ndtri

    chosen, counted = (without[::2], member[::2]), (without[1::2], member[1::2])
    thresholds = np.unique(np.quantile(np.concatenate(chosen), np.linspace(0.002, 0.998, 499)))

    def ends(scores: tuple[np.ndarray, np.ndarray], at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Highest plausible rate of false guesses, lowest of true ones: guesses that the row is there, or that not."""
        (out, inside), most = (np.searchsorted(np.sort(s), at, "right") for s in scores), [len(s) for s in scores]
        there = interval(most[0] - out, most[0], confidence)[1], interval(most[1] - inside, most[1], confidence)[0]
        absent = interval(inside, most[1], confidence)[1], interval(out, most[0], confidence)[0]
        return np.stack([there[0], absent[0]]), np.stack([there[1], absent[1]])

    def plain(high: np.ndarray, low: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(low - delta, 1e-300) / high)

    def gaussian(high: np.ndarray, low: np.ndarray) -> np.ndarray:
        return np.asarray(ndtri(low) - ndtri(high))

    found = []
    for value in (plain, gaussian):
        way, place = np.unravel_index(np.argmax(value(*ends(chosen, thresholds))), (2, len(thresholds)))
        found.append(max(0.0, float(value(*ends(counted, thresholds))[way, place])))
    return LowerBounds(found[0], epsilon_of(found[1], delta), found[1])


def allowed(mu: float, false_rate: np.ndarray) -> np.ndarray:
    """The largest true positive rates that mu-GDP allows: Phi(Phi^-1(FPR) + mu)."""
    from scipy.special import ndtr, ndtri

    return np.asarray(ndtr(ndtri(false_rate) + mu))


def allowed_area(mu: float) -> float:
    """The largest area under the curve that mu-GDP allows: Phi(mu / sqrt 2)."""
    from scipy.special import ndtr

    return float(ndtr(mu / math.sqrt(2)))
