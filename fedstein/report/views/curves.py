"""Metrics by round, bytes, row-gradients and seconds, and the headline numbers with their change."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedstein.evaluation.metrics import METRICS
from fedstein.report.follow import FollowedRun
from fedstein.report.views.grouping import FollowedGroup
from fedstein.report.views.points import bucketed, merged, short, shorts, step

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
        {name: {"x": {axis: values}, "mean", "low", "high", "each": rounds a point}} of the metrics with a value.
    """
    tables = [run.table for run in group.runs]
    numbers = [table.numbers("round") for table in tables]
    sums = {axis: [np.cumsum(table.numbers(axis)) for table in tables] for axis in AXES[1:]}
    places: dict[bytes, dict[str, Any]] = {}  # metrics that are known in the same rounds share their axes
    found = {}
    for name in metrics:
        values = [table.metric(name) for table in tables]
        evaluated = [at[~np.isnan(column)] for at, column in zip(numbers, values, strict=True)]
        rounds = evaluated[0] if len(evaluated) == 1 else np.unique(np.concatenate(evaluated))
        if not len(rounds):
            continue
        size, key = step(len(rounds)), rounds.tobytes()
        if key not in places:
            axes = {axis: merged(_placed(rounds, numbers, columns), "mean") for axis, columns in sums.items()}
            places[key] = {axis: shorts(bucketed(x, size, "mean")) for axis, x in {"round": rounds, **axes}.items()}
        seen = _placed(rounds, numbers, values)
        found[name] = {
            "x": places[key],
            "mean": shorts(merged(bucketed(seen, size, "mean"), "mean")),
            "low": shorts(merged(bucketed(seen, size, "min"), "min")),
            "high": shorts(merged(bucketed(seen, size, "max"), "max")),
            "each": size,
        }
    return found


def _placed(rounds: np.ndarray, numbers: list[np.ndarray], columns: list[np.ndarray]) -> np.ndarray:
    """The values of each run at some rounds, runs x rounds; NaN if a run does not have the round."""
    out = np.full((len(numbers), len(rounds)), np.nan)
    for row, (own, column) in enumerate(zip(numbers, columns, strict=True)):
        place = np.searchsorted(own, rounds)
        inside = place < len(own)
        inside[inside] = own[place[inside]] == rounds[inside]
        out[row, inside] = column[place[inside]]
    return out


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
