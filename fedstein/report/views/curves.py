"""Metrics by round, bytes, row-gradients and seconds, and the headline numbers with their change."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedstein.evaluation.metrics import METRICS
from fedstein.report.follow import FollowedRun
from fedstein.report.views.grouping import FollowedGroup
from fedstein.report.views.points import bucketed, short, shorts, step

AXES = ("round", "bytes", "gradients", "seconds")
SHOWN = ("accuracy", "rmse", "nll", "ece", "brier", "mce")
SPARK = 60


def shown_metrics(runs: list[FollowedRun]) -> list[str]:
    """The metrics that any run has a value of, the leading one first."""
    found = {name for run in runs for name in run.table.metrics}
    return [name for name in SHOWN if name in found] + sorted(found - set(SHOWN))


def group_curves(group: FollowedGroup, metrics: list[str]) -> dict[str, Any]:
    """The curves of a group: the mean over seeds, and the band from the lowest to the highest value.

    Args:
        group: The runs.
        metrics: The metrics to show.

    Returns:
        {"metrics": {name: {"x": {axis: values}, "mean", "low", "high", "each": rounds a point}}}.
    """
    return {name: curve for name in metrics if (curve := _curve(group, name)) is not None}


def _curve(group: FollowedGroup, metric: str) -> dict[str, Any] | None:
    seen = [(run.table.numbers("round"), run.table.metric(metric), run.table) for run in group.runs]
    rounds = np.unique(np.concatenate([numbers[~np.isnan(values)] for numbers, values, _ in seen]))
    if not len(rounds):
        return None
    values = np.full((len(seen), len(rounds)), np.nan)
    axes = {axis: np.full((len(seen), len(rounds)), np.nan) for axis in AXES[1:]}
    for row, (numbers, found, table) in enumerate(seen):
        place = np.searchsorted(numbers, rounds)
        inside = place < len(numbers)
        inside[inside] = numbers[place[inside]] == rounds[inside]
        values[row, inside] = found[place[inside]]
        for axis, matrix in axes.items():
            matrix[row, inside] = np.cumsum(table.numbers(axis))[place[inside]]
    size = step(len(rounds))
    x = {"round": bucketed(rounds, size, "mean")}
    x |= {axis: bucketed(_over_seeds(matrix), size, "mean") for axis, matrix in axes.items()}
    merged = {how: bucketed(values, size, how) for how in ("mean", "min", "max")}
    return {
        "x": {axis: shorts(numbers) for axis, numbers in x.items()},
        "mean": shorts(_over_seeds(merged["mean"])),
        "low": shorts(bucketed(merged["min"].T, len(seen), "min")[:, 0]),
        "high": shorts(bucketed(merged["max"].T, len(seen), "max")[:, 0]),
        "each": size,
    }


def _over_seeds(values: np.ndarray) -> np.ndarray:
    return bucketed(values.T, len(values), "mean")[:, 0]


def headline(group: FollowedGroup, metrics: list[str]) -> list[dict[str, Any]]:
    """The last value of each metric, its change over the last tenth of the rounds, and what the run has cost so far.

    Args:
        group: The runs; numbers are means over them.
        metrics: The metrics to show.
    """
    entries = []
    for name in metrics[:4]:
        pairs = [pair for run in group.runs if (pair := _last_and_before(run, name)) is not None]
        if pairs:
            last, before, since = (float(np.mean([pair[i] for pair in pairs])) for i in range(3))
            larger = METRICS[name].larger_is_better if name in METRICS else None
            entries.append(
                {
                    "name": name,
                    "value": short(last),
                    "change": short(last - before) if since else None,
                    "since": round(since),
                    "larger_is_better": larger,
                }
            )
    down, up = (float(np.mean([getattr(run.table, f"bytes_{way}") for run in group.runs])) for way in ("down", "up"))
    seconds = float(np.mean([run.table.numbers("seconds").sum() for run in group.runs]))
    gradients = float(np.mean([run.table.numbers("gradients").sum() for run in group.runs]))
    entries.append({"name": "bytes", "value": short(down + up), "down": short(down), "up": short(up)})
    entries.append({"name": "gradients", "value": short(gradients)})
    entries.append({"name": "seconds", "value": short(seconds)})
    return entries


def _last_and_before(run: FollowedRun, metric: str) -> tuple[float, float, float] | None:
    """The last value, the one a tenth of the rounds earlier, and how many rounds lie between."""
    values, rounds = run.table.metric(metric), run.table.numbers("round")
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return None
    last = known[-1]
    earlier = known[rounds[known] <= rounds[last] - max(1, round(len(run.table) / 10))]
    before = earlier[-1] if len(earlier) else last
    return float(values[last]), float(values[before]), float(rounds[last] - rounds[before])


def sparkline(run: FollowedRun) -> dict[str, Any]:
    """The leading metric of a run in at most 60 points, for the list of runs."""
    metrics = shown_metrics([run])
    if not metrics:
        return {"metric": None, "values": [], "last": None}
    values = run.table.metric(metrics[0])
    values = values[~np.isnan(values)]
    found = bucketed(values, step(len(values), SPARK), "mean")
    return {"metric": metrics[0], "values": shorts(found), "last": short(values[-1])}
