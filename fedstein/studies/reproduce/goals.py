"""The goals for curvature sites, checked against runs.

Each goal is one inequality between numbers of runs with the same seeds. For logistic regression it must hold for each
scheme, for networks it must hold for the best scheme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from fedstein.report.load import Run
from fedstein.report.summary import paired_interval

Runs = Mapping[str, Sequence[Run]]
LINEAR = ("blr30", "blr120")
NETWORKS = ("bnn27", "bnn120")


class Check(NamedTuple):
    """One goal for one method."""

    text: str
    variant: str
    measured: str
    met: bool
    sure: bool = True  # whether the 95% interval over seeds confirms it

    @property
    def word(self) -> str:
        """ "no" if the mean misses the goal, "yes" if the interval confirms it, else "undecided"."""
        return "no" if not self.met else "yes" if self.sure else "undecided"


def check_goals(panel: str, runs: Runs) -> list[Check]:
    """Check the goals of a setting.

    Args:
        panel: The setting.
        runs: The runs by variant.

    Returns:
        The checks; none if the setting has no goals or there is nothing to compare with.
    """
    ours = [variant for variant in runs if variant.startswith("curvature")]
    if not ours or "pooled" not in runs:
        return []
    if panel in LINEAR:
        return [check for variant in ours for check in linear_goals(variant, runs)]
    if panel in NETWORKS:
        most = max(len(runs[variant]) for variant in ours)  # a scheme with fewer seeds may be better by chance
        whole = [variant for variant in ours if len(runs[variant]) == most]
        return network_goals(max(whole, key=lambda variant: tail_mean(runs[variant])), runs)
    return []


def linear_goals(variant: str, runs: Runs) -> list[Check]:
    """Check the goals of logistic regression: close to pooled SVGD after all have trained, steady, calibrated."""
    behind = [shortfall(run, pooled) for run, pooled in pairs(runs[variant], runs["pooled"])]
    known = [value for value in behind if value is not None]
    words = f"{max(known):+.4f} at the worst round" if known else "no run had every client"
    text = "at most .004 behind pooled SVGD once every client has trained"
    return [
        Check(text, variant, words, len(known) == len(behind) > 0 and max(known) <= 0.004),
        at_most("sd within a run", variant, within(runs[variant]), 0.001),
        at_most("ECE", variant, tail_mean(runs[variant], "ece"), 0.03),
    ]


def network_goals(variant: str, runs: Runs) -> list[Check]:
    """Check the goals of networks for the best scheme: close to pooled SVGD, better than FedAvg, steady, calibrated."""
    behind = gaps(runs["pooled"], runs[variant])
    _, _, most = paired_interval(behind)
    sure = most is not None and most <= 0.008
    text = "behind pooled SVGD at equal steps at most .008"
    checks = [Check(text, variant, spread(behind), fmean(behind) <= 0.008, sure)]
    if "fedavg" in runs and (ahead := gaps(runs[variant], runs["fedavg"])):
        _, least, _ = paired_interval(ahead)
        sure = least is not None and least > 0
        checks.append(Check("above FedAvg with all clients", variant, spread(ahead), fmean(ahead) > 0, sure))
    checks.append(at_most("sd within a run", variant, within(runs[variant]), 0.004))
    return [*checks, at_most("ECE", variant, tail_mean(runs[variant], "ece"), 0.025)]


def at_most(text: str, variant: str, value: float, limit: float) -> Check:
    """Check that a number is within a limit."""
    return Check(f"{text} at most {limit:g}".replace(" 0.", " ."), variant, f"{value:.4f}", value <= limit)


def shortfall(run: Run, pooled: Run) -> float | None:
    """Compute how far a run is behind pooled SVGD, at its worst round after all clients have trained.

    Returns:
        The difference in accuracy, or None if some client never trained.
    """
    start = covered(run)
    level = pooled.tail["accuracy"]["mean"]
    if start is None or level is None:
        return None
    return max(level - line["accuracy"] for line in run.rounds if line["round"] >= start and line["accuracy"])


def covered(run: Run) -> int | None:
    """Return the first round by which every client has trained, or None."""
    missing = set(range(len(run.selected_counts)))
    for line in run.rounds:
        missing -= set(line["selected"])
        if not missing:
            return int(line["round"])
    return None


def tail_mean(runs: Sequence[Run], metric: str = "accuracy") -> float:
    """Return the mean over runs of a metric in the last quarter of the rounds."""
    return fmean(run.tail[metric]["mean"] or 0.0 for run in runs)


def within(runs: Sequence[Run]) -> float:
    """Return the mean over runs of the standard deviation in the last quarter."""
    return fmean(run.tail["accuracy"]["sd"] or 0.0 for run in runs)


def pairs(mine: Sequence[Run], theirs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Return the pairs of runs with the same seed."""
    other = {run.seed: run for run in theirs}
    return [(run, other[run.seed]) for run in mine if run.seed in other]


def gaps(mine: Sequence[Run], theirs: Sequence[Run]) -> list[float]:
    """Return the differences in tail accuracy, one for each common seed."""
    return [tail_mean([run]) - tail_mean([other]) for run, other in pairs(mine, theirs)]


def spread(differences: Sequence[float]) -> str:
    """Format the mean of differences and its 95% interval, which needs at least two seeds."""
    mean, low, high = paired_interval(list(differences))
    return f"{mean:+.4f}, one seed" if low is None else f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"
