"""The tail of a run: means over its last quarter, which vary less than the metrics of the last round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from fedstein.evaluation.metrics.base import Metrics
from fedstein.evaluation.metrics.registry import NAMES


def evaluated(line: Mapping[str, Any], names: Sequence[str] = NAMES) -> bool:
    """Whether a line of rounds.jsonl carries any of the named metrics.

    Args:
        line: The line.
        names: The names of the metrics.

    Returns:
        True if at least one of them has a value.
    """
    return any(line.get(metric) is not None for metric in names)


def tail(rounds: Sequence[Mapping[str, Any]], names: Sequence[str] = NAMES) -> dict[str, Metrics]:
    """Compute the mean and the standard deviation of metrics over the last quarter of a run.

    Args:
        rounds: The lines of rounds.jsonl.
        names: The metrics that the run has.

    Returns:
        {metric: {mean, sd}} over the evaluated rounds r with r > 3/4 of the last round. ``sd`` is the sample standard
        deviation (n - 1), None for a single round. A metric that is null in one of those rounds has no mean: it was
        not finite there, and a mean of the rest would flatter the run.
    """
    start = 0.75 * rounds[-1]["round"] if rounds else 0.0
    lines = [line for line in rounds if line["round"] > start and evaluated(line, names)]
    result: dict[str, Metrics] = {}
    for metric in names:
        values = [line[metric] for line in lines if line.get(metric) is not None]
        whole = bool(values) and len(values) == len(lines)
        result[metric] = {
            "mean": fmean(values) if whole else None,
            "sd": stdev(values) if whole and len(values) > 1 else None,
        }
    return result
