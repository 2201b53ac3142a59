"""The scores of an entry: means over its runs, values by seed, and differences from another method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedstein.inference.methods import METHODS
from fedstein.report.summary import paired_interval
from fedstein.studies.leaderboard.plan import Board
from fedstein.studies.leaderboard.play import Entry
from fedstein.studies.leaderboard.ranks import mean_of

AREA = "ood auroc"
LARGER = {"accuracy": True, "rmse": False, "nll": False, "ece": False, "brier": False, AREA: True}


class Gap(NamedTuple):
    """The mean of a method's scores minus those of the default, paired by seed, with Student's 95% interval."""

    mean: float
    low: float | None
    high: float | None

    def better(self, metric: str) -> bool | None:
        """Whether the interval says that the method is better (True) or worse (False); None if it holds 0."""
        if self.low is None or self.high is None or self.low <= 0 <= self.high:
            return None
        return (self.mean > 0) == LARGER[metric]


def lead_of(entries: Sequence[Entry]) -> str:
    """The metric that decides: accuracy, or RMSE for regression."""
    runs = [run for entry in entries for run in entry.runs]
    return "accuracy" if any(run.final.get("accuracy") is not None for run in runs) else "rmse"


def known_metrics(entries: Sequence[Entry]) -> list[str]:
    """The metrics that a task has, in the order of the tables."""
    return [name for name in LARGER if any(mean_score(entry, name) is not None for entry in entries)]


def values_of(entry: Entry, metric: str) -> list[float | None]:
    """The final value of a metric, run by run."""
    if metric == AREA:
        return list(entry.areas)
    if entry.quoted:
        return [scores.get(metric) for scores in entry.quoted]
    return [run.final.get(metric) for run in entry.runs]


def mean_score(entry: Entry, metric: str) -> float | None:
    """The mean of a metric over the runs of an entry; None if a run lacks it."""
    return mean_of(values_of(entry, metric))


def by_seed(entry: Entry, metric: str) -> dict[int, float]:
    """The final value of a metric for every seed: its mean over clients if each client trains alone."""
    found: dict[int, list[float | None]] = {}
    for run, value in zip(entry.runs, values_of(entry, metric), strict=False):
        found.setdefault(run.seed, []).append(value)
    means = {seed: mean_of(values) for seed, values in found.items()}
    return {seed: value for seed, value in means.items() if value is not None}


def gap(entry: Entry, default: Entry | None, metric: str) -> Gap | None:
    """How a method differs from the default; None if there is nothing to compare."""
    if default is None or not default.runs or entry.method == default.method:
        return None
    ours, theirs = by_seed(entry, metric), by_seed(default, metric)
    gaps = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return Gap(*paired_interval(gaps)) if gaps else None


def references(board: Board, entries: Sequence[Entry]) -> set[str]:
    """The methods that are no federated ones: clients that train alone, and methods with all rows in one place."""
    found = set(board.alone)
    for name, settings in board.methods.items():
        algorithm = settings.get("algorithm")
        kind = algorithm.get("kind") if isinstance(algorithm, Mapping) else None
        if isinstance(kind, str) and kind in METHODS and METHODS[kind].pooled:
            found.add(name)
    return found & {entry.method for entry in entries}
