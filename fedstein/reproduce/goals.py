"""The goals that curvature sites were given, checked against runs: what was asked, what was reached.

Every goal is one inequality on numbers of runs with the same seeds. With logistic regression it must hold for each
scheme, with networks for the best of them.
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
    arm: str
    measured: str
    met: bool
    sure: bool = True  # whether its 95% interval over seeds says so too

    @property
    def word(self) -> str:
        """What the mean misses is missed; what it reaches within the noise of the seeds is undecided."""
        return "no" if not self.met else "yes" if self.sure else "undecided"


def check_goals(panel: str, runs: Runs) -> list[Check]:
    """The goals of a setting; none where it has no goals or nothing to compare with."""
    ours = [arm for arm in runs if arm.startswith("curvature")]
    if not ours or "pooled" not in runs:
        return []
    if panel in LINEAR:
        return [check for arm in ours for check in linear_goals(arm, runs)]
    if panel in NETWORKS:
        most = max(len(runs[arm]) for arm in ours)  # a scheme that ran with fewer seeds may have been lucky
        whole = [arm for arm in ours if len(runs[arm]) == most]
        return network_goals(max(whole, key=lambda arm: tail_mean(runs[arm])), runs)
    return []


def linear_goals(arm: str, runs: Runs) -> list[Check]:
    """Near pooled SVGD as soon as every client has trained, steady, calibrated."""
    behind = [shortfall(run, pooled) for run, pooled in pairs(runs[arm], runs["pooled"])]
    known = [value for value in behind if value is not None]
    words = f"{max(known):+.4f} at the worst round" if known else "no run had every client"
    text = "at most .004 behind pooled SVGD once every client has trained"
    return [
        Check(text, arm, words, len(known) == len(behind) > 0 and max(known) <= 0.004),
        at_most("sd within a run", arm, within(runs[arm]), 0.001),
        at_most("ECE", arm, tail_mean(runs[arm], "ece"), 0.03),
    ]


def network_goals(arm: str, runs: Runs) -> list[Check]:
    """The best scheme: near pooled SVGD, above FedAvg with all clients, steady, calibrated."""
    behind = gaps(runs["pooled"], runs[arm])
    _, _, most = paired_interval(behind)
    sure = most is not None and most <= 0.008
    text = "behind pooled SVGD at equal steps at most .008"
    checks = [Check(text, arm, spread(behind), fmean(behind) <= 0.008, sure)]
    if "fedavg" in runs and (ahead := gaps(runs[arm], runs["fedavg"])):
        _, least, _ = paired_interval(ahead)
        sure = least is not None and least > 0
        checks.append(Check("above FedAvg with all clients", arm, spread(ahead), fmean(ahead) > 0, sure))
    checks.append(at_most("sd within a run", arm, within(runs[arm]), 0.004))
    return [*checks, at_most("ECE", arm, tail_mean(runs[arm], "ece"), 0.025)]


def at_most(text: str, arm: str, value: float, limit: float) -> Check:
    return Check(f"{text} at most {limit:g}".replace(" 0.", " ."), arm, f"{value:.4f}", value <= limit)


def shortfall(run: Run, pooled: Run) -> float | None:
    """The most that a run is behind pooled SVGD's last quarter, from the round by which every client has trained.

    None where some client never did.
    """
    start = covered(run)
    level = pooled.tail["accuracy"]["mean"]
    if start is None or level is None:
        return None
    return max(level - line["accuracy"] for line in run.rounds if line["round"] >= start and line["accuracy"])


def covered(run: Run) -> int | None:
    """The first round by which every client has trained."""
    missing = set(range(len(run.selected_counts)))
    for line in run.rounds:
        missing -= set(line["selected"])
        if not missing:
            return int(line["round"])
    return None


def tail_mean(runs: Sequence[Run], metric: str = "accuracy") -> float:
    return fmean(run.tail[metric]["mean"] or 0.0 for run in runs)


def within(runs: Sequence[Run]) -> float:
    """The mean over runs of the standard deviation in their last quarter."""
    return fmean(run.tail["accuracy"]["sd"] or 0.0 for run in runs)


def pairs(mine: Sequence[Run], theirs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Runs with the same seed."""
    other = {run.seed: run for run in theirs}
    return [(run, other[run.seed]) for run in mine if run.seed in other]


def gaps(mine: Sequence[Run], theirs: Sequence[Run]) -> list[float]:
    """The differences in tail accuracy, seed by seed."""
    return [tail_mean([run]) - tail_mean([other]) for run, other in pairs(mine, theirs)]


def spread(differences: Sequence[float]) -> str:
    """Their mean and its 95% interval; one seed has none."""
    mean, low, high = paired_interval(list(differences))
    return f"{mean:+.4f}, one seed" if low is None else f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"
