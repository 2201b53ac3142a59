"""Intervals for paired differences, also such as may be looked at after every seed; decisions over a whole page.

A comparison of two schemes is decided in one of three ways: one is above the other, below it, or there is "no
difference that matters", which is a mean within +-``MARGIN``. Behind them are two tests:

- *apart*: the hypothesis "the mean is 0", rejected by the interval that excludes zero (paired t test, two-sided);
- *alike*: the hypothesis "the mean is at least MARGIN away from 0", rejected by two one-sided tests (TOST, Schuirmann
  1987), which is the interval of level 1 - 2 alpha within +-MARGIN.

**Correction.** A page has m comparisons. ``decide`` applies Holm's correction to the m tests of the first kind at
alpha / 2, and to those of the second kind at alpha / 2. Each keeps the probability of any wrong rejection of its kind
at alpha / 2 whatever the dependence, so that of any wrong verdict on the page is at most alpha.

One correction over the smaller of the two levels of each comparison would not keep it. Holm's step from alpha / m to
alpha / (m - 1) rests on a rejected hypothesis being false. A comparison whose mean is exactly MARGIN and which is
decided as "above", rightly, still has a true hypothesis (*alike*), so the divisor must not fall. The comparisons left
over are then those whose mean happened to come out smallest, and they would be taken for "no difference" at alpha
itself. The tests show it by simulation.

**Looks.** Student's interval is for a number of seeds that is fixed beforehand. If seeds were added because the
verdicts of a page were not decided, the new page is a second look at growing data: each of n looks has alpha / n. With
the confidence sequence (``--until-decided``) any number of looks is allowed, which costs width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import stdtr, stdtrit

ALPHA = 0.05
MARGIN = 0.005  # a smaller difference of accuracies does not matter
EFFECT = 1.0  # sd of the normal mixture over the effect size (mean / sd of a difference) in the confidence sequence
RULES = {
    "student": "Student's interval, for a number of seeds that was fixed before",
    "sequence": "an always-valid confidence sequence, which keeps its error rate when seeds are added until it decides",
}


class Interval(NamedTuple):
    """The mean of paired differences and its interval; the ends are infinite if there are too few differences."""

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


class Levels(NamedTuple):
    """The smallest error levels (p values) at which the two tests of a comparison reject."""

    apart: float = 1.0  # the mean is not zero
    alike: float = 1.0  # the mean is within +-margin


def levels_of(gaps: Sequence[float], rule: str = "student", margin: float = MARGIN) -> Levels:
    """Compute the levels of both tests of a comparison.

    With n differences of mean m and standard error e, Student's levels are

        apart = 2 P(T > |m| / e),   alike = P(T > (margin - |m|) / e),   T ~ t(n - 1),

    the second of which is the larger of the two one-sided levels. The confidence sequence has no one-sided form
    here: its level of ``alike`` is that of the two-sided interval, which is larger.

    Args:
        gaps: The differences, one for each seed.
        rule: ``student`` or ``sequence``.
        margin: The largest difference that does not matter; 0 if every difference does.

    Returns:
        The levels.
    """
    mean = abs(fmean(gaps))
    apart = level_of(gaps, mean, rule) if mean > 0 else 1.0
    if mean >= margin:
        return Levels(apart)
    two_sided = level_of(gaps, margin - mean, rule)
    return Levels(apart, two_sided / 2 if rule == "student" and len(gaps) > 1 else two_sided)


def decide(levels: Sequence[Levels], alpha: float = ALPHA, looks: int = 1) -> list[str]:
    """Decide the comparisons of a page together.

    Args:
        levels: The levels of each comparison.
        alpha: The probability of any wrong verdict on the page, over all looks.
        looks: How often verdicts were looked at before seeds were added, this time included; 1 for a number of seeds
            that was fixed beforehand, and for the confidence sequence.

    Returns:
        For each comparison ``apart``, ``alike`` or, if it is undecided, an empty string. A difference that is shown
        not to be zero and shown not to matter is ``alike``.
    """
    share = alpha / 2 / looks
    apart = holm([each.apart for each in levels], share)
    alike = holm([each.alike for each in levels], share)
    return ["alike" if same else "apart" if other else "" for same, other in zip(alike, apart, strict=True)]


def holm(levels: Sequence[float], alpha: float = ALPHA) -> list[bool]:
    """Holm's step-down correction: the i-th smallest of m levels must be at most alpha / (m - i + 1), in a row.

    Args:
        levels: The levels (p values) of one kind of test for all comparisons of a page.
        alpha: The probability of any wrong rejection.

    Returns:
        For each comparison, whether its hypothesis is rejected.
    """
    decided = [False] * len(levels)
    for place, index in enumerate(sorted(range(len(levels)), key=lambda i: levels[i])):
        if levels[index] > alpha / (len(levels) - place):
            break
        decided[index] = True
    return decided
