"""Ranks of methods over tasks, the critical difference of Nemenyi's test, and the cost of reaching a target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import rankdata, studentized_range

from fedstein.report.load import Run
from fedstein.runs.kept_draws import read_weights


def mean_ranks(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean rank of every method over the tasks that all methods have; 1 is best, ties share their ranks.

    Args:
        scores: Task -> method -> score; larger is better.

    Returns:
        Method -> mean rank; empty if no task has all methods.
    """
    methods = list(dict.fromkeys(method for row in scores.values() for method in row))
    whole = [row for row in scores.values() if all(method in row for method in methods)]
    if not whole or len(methods) < 2:
        return {}
    ranks = np.array([rankdata([-row[method] for method in methods]) for row in whole])
    return dict(zip(methods, (float(r) for r in ranks.mean(axis=0)), strict=True))


def critical_difference(methods: int, tasks: int, level: float = 0.05) -> float:
    """Nemenyi's critical difference of mean ranks: q sqrt(k (k + 1) / 6 n) (Demsar 2006).

    Args:
        methods: k.
        tasks: n.
        level: The level of the test over all pairs.

    Returns:
        The difference above which two mean ranks differ.
    """
    q = float(studentized_range.ppf(1 - level, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * tasks))


def reached(run: Run, target: float, metric: str = "accuracy") -> tuple[int, int, int] | None:
    """The rounds, bytes and row-gradients until a metric is first at least ``target``.

    Args:
        run: The run.
        target: The value to reach.
        metric: The metric; larger is better.

    Returns:
        The three costs, or None if the run never reaches it.
    """
    sent, work = 0, 0
    for record in run.rounds:
        sent += record["bytes_down"] + record["bytes_up"]
        work += sum((record.get("row_gradients") or {}).values())
        value = record.get(metric)
        if value is not None and value >= target:
            return int(record["round"]), sent, work
    return None


def costs(run: Run) -> tuple[int, int]:
    """The bytes and the row-gradients of a whole run, with those of refining its sites and weighing its draws."""
    sent = sum(record["bytes_down"] + record["bytes_up"] for record in run.rounds)
    work = sum(sum((record.get("row_gradients") or {}).values()) for record in run.rounds)
    refined = (run.summary or {}).get("refined") or {}
    for found in (refined, (read_weights(run.path) or {}) if refined else {}):
        sent += int(found.get("bytes_down") or 0) + int(found.get("bytes_up") or 0)
    return sent, work + int(refined.get("row_gradients") or 0)


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean, or None if a value is missing or there is none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
