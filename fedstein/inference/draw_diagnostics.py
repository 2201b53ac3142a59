"""Diagnostics of draws: they are compared with the usual limits, and every failure gives a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedstein.inference.diagnostics import bulk_ess, ebfmi, rhat
from fedstein.inference.importance import RELIABLE, Weighted

RHAT = 1.01  # the largest R-hat
ESS, ESS_PER_CHAIN = 400.0, 100.0  # the smallest effective sample sizes
DIVERGENT = 0.001  # the largest share of divergent iterations
EBFMI = 0.3  # the smallest E-BFMI


class Trace(NamedTuple):
    """The output of NUTS: the values that are kept, chains x draws x parameters, and of every iteration after the
    warm-up, chains x iterations, whether it diverged, its energy, its acceptance probability and its leapfrog steps.
    """

    values: np.ndarray
    diverging: np.ndarray
    energy: np.ndarray
    acceptance: np.ndarray
    steps: np.ndarray


@dataclass(frozen=True)
class DrawDiagnostics:
    """The diagnostics of chains.

    Attributes:
        rhat: Rank-normalised split R-hat of each parameter.
        ess: Bulk effective sample size of each parameter.
        divergences: How many of the kept iterations diverged.
        ebfmi: E-BFMI of each chain; empty if nothing had to be moved by NUTS.
        acceptance: The mean acceptance probability.
        steps: Leapfrog steps of an iteration, the mean.
        seconds: How long it took, compilation included.
        problems: Sentences that say why the draws cannot be trusted; empty if they can.
    """

    rhat: np.ndarray
    ess: np.ndarray
    divergences: int
    ebfmi: np.ndarray
    acceptance: float
    steps: float
    seconds: float
    problems: list[str]

    @property
    def trusted(self) -> bool:
        return not self.problems


def diagnose(draws: np.ndarray, trace: Trace, seconds: float) -> DrawDiagnostics:
    """Measure the chains.

    Args:
        draws: Chains x draws x d.
        trace: The output of NUTS.
        seconds: How long it took.

    Returns:
        The diagnostics with every problem that they show.
    """
    finite = bool(np.isfinite(draws).all())
    dim = draws.shape[-1]
    r = rhat(draws) if finite else np.full(dim, np.nan)
    size = bulk_ess(draws) if finite else np.full(dim, np.nan)
    moved = trace.values.shape[-1] > 0
    fractions = ebfmi(trace.energy) if moved else np.zeros(0)
    divergences = int(trace.diverging.sum())
    problems = check(draws.shape[0], trace.diverging.size, finite, r, size, divergences, fractions)
    acceptance, steps = float(trace.acceptance.mean()), float(trace.steps.mean())
    return DrawDiagnostics(r, size, divergences, fractions, acceptance, steps, seconds, problems)


def weights_diagnostics(weighted: Weighted) -> DrawDiagnostics:
    """Make the diagnostics of weighted draws, which come from no chain: all parameters have the ESS of the weights.

    Args:
        weighted: The draws.

    Returns:
        The diagnostics, with R-hat undefined.
    """
    dim, problems = weighted.draws.shape[1], []
    if not weighted.reliable:
        problems.append(f"The weights are not reliable: Pareto k is {weighted.k:.2f}, more than {RELIABLE}.")
    if weighted.ess < ESS:
        problems.append(f"The draws count as {weighted.ess:.0f}, less than {ESS:.0f}.")
    return DrawDiagnostics(
        np.full(dim, np.nan), np.full(dim, weighted.ess), 0, np.zeros(0), np.nan, np.nan, 0.0, problems
    )


def check(
    chains: int, iterations: int, finite: bool, r: np.ndarray, size: np.ndarray, divergences: int, fractions: np.ndarray
) -> list[str]:
    """Return a sentence for each reason not to trust the draws; NaN counts as a reason."""
    if not finite:
        return ["Some draws are not finite numbers; the prior times the sites may not be a proper density."]
    problems = []
    if not np.all(r <= RHAT):
        problems.append(
            f"The chains disagree: R-hat is up to {np.max(r):.3f} (parameter {int(np.argmax(r))}), more than {RHAT}."
        )
    least = max(ESS, ESS_PER_CHAIN * chains)
    if not np.all(size >= least):
        problems.append(
            f"The draws are too few or too dependent: parameter {int(np.argmin(size))} has an effective sample size of "
            f"{np.min(size):.0f}, less than {least:.0f}; take more draws."
        )
    if divergences > DIVERGENT * iterations:
        problems.append(f"{divergences} of {iterations} iterations diverged; take a higher acceptance.")
    if fractions.size and not np.all(fractions >= EBFMI):
        problems.append(
            f"The energy is explored too slowly: E-BFMI is down to {np.min(fractions):.2f}, less than {EBFMI}."
        )
    return problems
