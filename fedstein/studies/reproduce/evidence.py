"""Intervals for paired differences, also such as may be looked at after every seed; Holm's correction; decisions.

A comparison is decided in one of three ways: the interval is above zero, below zero, or within +-``MARGIN``, which is
"no difference that matters". ``decision_level`` is the smallest error level at which the interval decides. Holm's
correction compares these levels over all comparisons of a page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import stdtr, stdtrit

ALPHA = 0.05
MARGIN = 0.005  # of accuracy: a smaller difference does not matter
EFFECT = 1.0  # sd of the normal mixture over the effect size (mean / sd of a difference) in the confidence sequence
RULES = {
    "student": "Student's interval, for a number of seeds that was fixed before",
    "sequence": "an always-valid confidence sequence, which keeps its error rate when seeds are added until it decides",
}


class Interval(NamedTuple):
    """The mean of paired differences and its interval; the ends are infinite where there are too few differences."""

    mean: float
    low: float
    high: float


def interval(gaps: Sequence[float], rule: str = "student", alpha: float = ALPHA) -> Interval:
    """Compute the interval of the mean of paired differences.

    Args:
        gaps: The differences, one for each seed.
        rule: ``student`` or ``sequence``.
        alpha: The error level.

    Returns:
        The interval.
    """
    half = {"student": student_half, "sequence": sequence_half}[rule](gaps, alpha)
    mean = fmean(gaps)
    return Interval(mean, mean - half, mean + half)


def student_half(gaps: Sequence[float], alpha: float) -> float:
    """Half the width of Student's interval: t(1 - alpha / 2; n - 1) s / sqrt(n)."""
    if len(gaps) < 2:
        return math.inf
    return float(stdtrit(len(gaps) - 1, 1 - alpha / 2)) * stdev(gaps) / math.sqrt(len(gaps))


def sequence_half(gaps: Sequence[float], alpha: float, effect: float = EFFECT) -> float:
    """Half the width of the confidence sequence for the mean of normal differences with unknown variance.

    The t statistic against mean m has the Bayes factor, with effect size ~ N(0, g^2) and the right Haar prior on the
    standard deviation,

        B_n(m) = A^(-1/2) ((v + t^2) / (v + t^2 / A))^(n / 2),   A = 1 + n g^2,  v = n - 1,  t = sqrt(n) (mean - m) / s.

    At the true mean it is a non-negative martingale with expectation 1 in the filtration of the t statistics, whatever
    the variance. By Ville's inequality it ever reaches 1 / alpha with probability at most alpha. So the set of all m
    with B_n(m) < 1 / alpha covers the true mean at all n at once with probability at least 1 - alpha (Wang and Ramdas,
    arXiv:2310.03722).

    Args:
        gaps: The differences.
        alpha: The error level over all n together.
        effect: g. It changes the width and not the validity.

    Returns:
        Half the width; infinite for the first few differences.
    """
    count = len(gaps)
    if count < 2:
        return math.inf
    spread, freedom = 1 + count * effect**2, count - 1
    ratio = (math.sqrt(spread) / alpha) ** (2 / count)
    if ratio >= spread:
        return math.inf
    t = math.sqrt(freedom * (ratio - 1) / (1 - ratio / spread))
    return t * stdev(gaps) / math.sqrt(count)


def level_of(gaps: Sequence[float], distance: float, rule: str = "student", effect: float = EFFECT) -> float:
    """The error level at which half the width of the interval is ``distance``: the inverse of the two functions above.

    Args:
        gaps: The differences.
        distance: Half the width, positive.
        rule: ``student`` or ``sequence``.
        effect: As in ``sequence_half``.

    Returns:
        The level, at most 1.
    """
    count = len(gaps)
    if count < 2:
        return 1.0
    error = stdev(gaps) / math.sqrt(count)
    if error == 0:
        return 0.0
    t, freedom = distance / error, count - 1
    if rule == "student":
        return float(2 * stdtr(freedom, -t))
    spread = 1 + count * effect**2
    log_factor = count / 2 * (math.log(freedom + t * t) - math.log(freedom + t * t / spread)) - math.log(spread) / 2
    return min(1.0, math.exp(-log_factor))


def decision_level(gaps: Sequence[float], rule: str = "student", margin: float = MARGIN) -> float:
    """The smallest error level at which the interval decides: excludes zero, or lies within +-margin.

    Args:
        gaps: The differences.
        rule: ``student`` or ``sequence``.
        margin: The largest difference that does not matter; 0 where every difference does.

    Returns:
        The level.
    """
    mean = abs(fmean(gaps))
    levels = [level_of(gaps, mean, rule)] if mean > 0 else []
    if mean < margin:
        levels.append(level_of(gaps, margin - mean, rule))
    return min(levels, default=1.0)


def direction(gaps: Sequence[float], rule: str = "student", margin: float = MARGIN) -> str:
    """What the interval says where it decides: ``above``, ``below`` or ``same``, by the smaller of the two levels."""
    mean = fmean(gaps)
    apart = level_of(gaps, abs(mean), rule) if mean else 1.0
    if abs(mean) < margin and level_of(gaps, margin - abs(mean), rule) <= apart:
        return "same"
    return "above" if mean > 0 else "below"


def holm(levels: Sequence[float], alpha: float = ALPHA) -> list[bool]:
    """Holm's step-down correction: the i-th smallest of m levels must be at most alpha / (m - i + 1), in a row.

    Args:
        levels: The levels (p values) of all comparisons of a page.
        alpha: The probability of any wrong rejection on the page.

    Returns:
        For each comparison, whether it is decided.
    """
    decided = [False] * len(levels)
    for place, index in enumerate(sorted(range(len(levels)), key=lambda i: levels[i])):
        if levels[index] > alpha / (len(levels) - place):
            break
        decided[index] = True
    return decided
