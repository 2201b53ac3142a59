"""The part of the page about one task: scores, costs, and differences from the default method."""

from __future__ import annotations

from collections.abc import Sequence

from fedstein.report.tables import size
from fedstein.studies.leaderboard.plan import Board
from fedstein.studies.leaderboard.play import Entry
from fedstein.studies.leaderboard.ranks import costs, mean_of, reached
from fedstein.studies.leaderboard.scores import LARGER, gap, known_metrics, lead_of, mean_score
from fedstein.studies.markdown import table

POOLED = "pooled_svgd"
SHARE = 0.99  # costs are counted until this share of the pooled accuracy is reached


def task_tables(board: Board, entries: Sequence[Entry]) -> list[str]:
    """Write the tables of a task, the best method first.

    Args:
        board: The plan.
        entries: The entries of the task.

    Returns:
        The lines.
    """
    lead = lead_of(entries)
    shown = sorted((e for e in entries if e.runs), key=lambda e: _worse(mean_score(e, lead), lead))
    refused = [f"- `{entry.method}` did not run: {entry.refused}" for entry in entries if not entry.runs]
    lines = [*_scores(board, shown, lead), "", *_differences(board, shown), ""]
    return [*lines, *refused]


def _scores(board: Board, shown: Sequence[Entry], lead: str) -> list[str]:
    names = known_metrics(shown)
    pooled = next((mean_score(e, lead) for e in shown if e.method == POOLED), None) if lead == "accuracy" else None
    head = ["method", *names, "bytes", "row-gradients", "step size"]
    head += ["rounds, bytes, row-gradients to 99% of pooled"] if pooled is not None else []
    rows = []
    for entry in shown:
        sent, work = (mean_of([float(costs(run)[i]) for run in entry.runs]) for i in (0, 1))
        edge = " (edge)" if board.trials > 1 and entry.factor in (board.factors[0], board.factors[-1]) else ""
        row = [entry.method, *(_show(mean_score(entry, name)) for name in names), size(sent), f"{work or 0:.3g}"]
        row.append(f"{entry.step_size:.4g}{edge}")
        if pooled is not None:
            row.append(_reached(entry, SHARE * pooled))
        rows.append(row)
    edges = any("(edge)" in cell for row in rows for cell in row)
    note = ["", "(edge): the best step size is at the end of the grid; a wider one might do better."]
    return [*table(head, rows), *(note if edges else [])]


def _differences(board: Board, shown: Sequence[Entry]) -> list[str]:
    default = next((entry for entry in shown if entry.method == board.default), None)
    others = [entry for entry in shown if entry.method != board.default]
    if default is None or not others:
        return []
    names = known_metrics(shown)
    rows = [[entry.method, *(_difference(entry, default, name) for name in names)] for entry in others]
    return [
        f"Minus `{board.default}`, with 95% intervals; **bold** where the method is better than `{board.default}` and "
        "*italic* where it is worse:",
        "",
        *table(["method", *names], rows),
    ]


def _difference(entry: Entry, default: Entry, metric: str) -> str:
    found = gap(entry, default, metric)
    if found is None:
        return "-"
    text = f"{found.mean:+.4f}"
    if found.low is not None and found.high is not None:
        text += f" [{found.low:+.4f}, {found.high:+.4f}]"
    mark = {True: "**", False: "*", None: ""}[found.better(metric)]
    return f"{mark}{text}{mark}"


def _worse(value: float | None, metric: str) -> float:
    if value is None:
        return float("inf")
    return -value if LARGER[metric] else value


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _reached(entry: Entry, target: float) -> str:
    found = [reached(run, target) for run in entry.runs]
    if any(each is None for each in found):
        return f"reached by {sum(each is not None for each in found)} of {len(found)}"
    rounds, sent, work = (sum(each[i] for each in found if each) / len(found) for i in range(3))
    return f"{rounds:.0f}, {size(sent)}, {work:.3g}"
