"""The part of the page about all tasks: methods that beat the default, mean ranks, and scores against bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedstein.report.leaderboard_figures import draw_costs, draw_ranks
from fedstein.studies.leaderboard.plan import Board
from fedstein.studies.leaderboard.play import Entry
from fedstein.studies.leaderboard.ranks import costs, critical_difference, mean_of, mean_ranks
from fedstein.studies.leaderboard.scores import LARGER, gap, lead_of, mean_score, references
from fedstein.studies.markdown import table

RANKED = ("lead", "nll", "ece")  # the metrics that methods are ranked by; "lead" is accuracy, or RMSE
NAMES = {"lead": "accuracy or RMSE", "nll": "NLL", "ece": "ECE"}


def overall(board: Board, entries: Sequence[Entry], place: Path) -> list[str]:
    """Write what is said of all tasks together, and draw its figures.

    Args:
        board: The plan.
        entries: All entries.
        place: The folder of the figures.

    Returns:
        The lines.
    """
    lines = ["## Over all tasks", "", *_ahead(board, entries), ""]
    outside = references(board, entries)
    ranks: dict[str, tuple[dict[str, float], float]] = {}
    for metric in RANKED:
        found, tasks = _ranks(board, [entry for entry in entries if entry.method not in outside], metric)
        if found and tasks > 1:  # ranks on a single task are its table
            ranks[NAMES[metric]] = (found, critical_difference(len(found), tasks))
    if ranks:
        draw_ranks(ranks, board.default, place / "ranks.png")
        first = next(iter(ranks.values()))
        rows = [
            [name, *(f"{found[name]:.2f}" if name in found else "-" for found, _ in ranks.values())]
            for name in sorted(first[0], key=lambda name: first[0][name])
        ]
        lines += [
            "Mean ranks of the federated methods that ran on all tasks. Two methods differ at the 5% level "
            "(Nemenyi's test) where their mean ranks are further apart than the critical difference: "
            + ", ".join(f"{difference:.2f} for {name}" for name, (_, difference) in ranks.items())
            + ". A bar joins methods that do not differ. A metric that a task does not have is ranked over the others.",
            "",
            *table(["method", *ranks], rows),
            "",
            "![Mean ranks](ranks.png)",
            "",
        ]
    return lines + _pareto(board, entries, place)


def _of(metric: str, entries: Sequence[Entry]) -> str:
    return lead_of(entries) if metric == "lead" else metric


def _ranks(board: Board, entries: Sequence[Entry], metric: str) -> tuple[dict[str, float], int]:
    """The mean ranks of the methods that have the metric on every task which has it, and the number of those tasks."""
    scores = {}
    for task in board.tasks:
        mine = [entry for entry in entries if entry.task == task and entry.runs]
        name = _of(metric, mine)
        sign = 1.0 if LARGER[name] else -1.0
        found = {entry.method: sign * value for entry in mine if (value := mean_score(entry, name)) is not None}
        if found:
            scores[task] = found
    common = set.intersection(*(set(row) for row in scores.values())) if scores else set()
    kept = {task: {name: row[name] for name in row if name in common} for task, row in scores.items()}
    return mean_ranks(kept), len(kept)


def _ahead(board: Board, entries: Sequence[Entry]) -> list[str]:
    """List the federated methods that beat the default on a task: their paired interval excludes 0."""
    outside = references(board, entries)
    rows = []
    for task in board.tasks:
        mine = [entry for entry in entries if entry.task == task and entry.runs]
        default = next((entry for entry in mine if entry.method == board.default), None)
        if default is None:
            continue
        row = [task]
        for metric in RANKED:
            name = _of(metric, mine)
            gaps = {e.method: gap(e, default, name) for e in mine if e.method not in outside}
            better = [method for method, found in gaps.items() if found is not None and found.better(name)]
            worse = sum(found is not None and found.better(name) is False for found in gaps.values())
            compared = sum(found is not None for found in gaps.values())
            text = f"behind {', '.join(better)}" if better else "no method is ahead"
            row.append(f"{text}; ahead of {worse} of {compared}" if compared else "-")
        rows.append(row)
    said = (
        f"Where `{board.default}` stands among the federated methods. A method is ahead where the paired 95% interval "
        "of the difference excludes 0; the intervals are not corrected for their number."
    )
    return [said, "", *table(["task", *(NAMES[metric] for metric in RANKED)], rows)] if rows else []


def _pareto(board: Board, entries: Sequence[Entry], place: Path) -> list[str]:
    points, leads = {}, set()
    for task in board.tasks:
        mine = [entry for entry in entries if entry.task == task and entry.runs]
        lead = lead_of(mine)
        sign = 1.0 if LARGER[lead] else -1.0
        found = {entry.method: sign * value for entry in mine if (value := mean_score(entry, lead)) is not None}
        sent = {entry.method: mean_of([float(costs(run)[0]) for run in entry.runs]) or 1.0 for entry in mine}
        if found:
            leads.add(lead)
            points[task] = {method: (sent[method], value) for method, value in found.items()}
    if not points:
        return []
    metric = "accuracy" if leads == {"accuracy"} else "accuracy, or minus RMSE"
    draw_costs(points, metric, board.default, place / "costs.png")
    return ["![Score against bytes](costs.png)", ""]
