"""The page of a leaderboard: a table for each task, ranks over tasks, and two figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedstein.files import disk_errors, write_bytes
from fedstein.report.leaderboard_figures import draw_costs, draw_ranks
from fedstein.report.summary import paired_interval
from fedstein.report.tables import size
from fedstein.studies.leaderboard.plan import Board
from fedstein.studies.leaderboard.play import Entry, note_of
from fedstein.studies.leaderboard.ranks import costs, critical_difference, mean_of, mean_ranks, reached
from fedstein.studies.markdown import table

SCORES = {"accuracy": 4, "rmse": 4, "nll": 4, "ece": 4, "brier": 4}  # metric -> decimals
POOLED = "pooled_svgd"
SHARE = 0.99  # of the pooled accuracy: the target that costs are counted to


def write_page(board: Board, entries: Sequence[Entry], place: Path) -> Path:
    """Write ``leaderboard.md`` and its figures.

    Args:
        board: The plan.
        entries: What came of it.
        place: The folder.

    Returns:
        The page.
    """
    lines = ["# Leaderboard", "", *_head(board), ""]
    for task in board.tasks:
        lines += [f"## {task}", "", *_task(board, [entry for entry in entries if entry.task == task]), ""]
    with disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        lines += _overall(board, entries, place)
        path = place / "leaderboard.md"
        write_bytes(path, ("\n".join(lines).rstrip() + "\n").encode())
    return path


def _head(board: Board) -> list[str]:
    few = " With fewer than five seeds intervals are wide, and ranks over few tasks decide little."
    return [
        f"{len(board.tasks)} tasks, {len(board.methods)} methods, {board.seeds} seeds. {note_of(board)} Scores are "
        "those of the last round on the test rows, means over seeds. Differences are paired by seed against "
        f"`{board.default}`, with Student's 95% interval." + (few if board.seeds < 5 or len(board.tasks) < 5 else "")
    ]


def lead_of(entries: Sequence[Entry]) -> str:
    """The metric that decides: accuracy, or RMSE for regression."""
    runs = [run for entry in entries for run in entry.runs]
    return "accuracy" if any(run.final.get("accuracy") is not None for run in runs) else "rmse"


def _task(board: Board, entries: Sequence[Entry]) -> list[str]:
    lead = lead_of(entries)
    names = [name for name in SCORES if any(_mean(entry, name) is not None for entry in entries)]
    by_name = {entry.method: entry for entry in entries}
    pooled = _mean(by_name[POOLED], lead) if POOLED in by_name and lead == "accuracy" else None
    compared = [name for name in (lead, "nll") if name in names]
    head = [
        "method",
        *names,
        *(f"{name} - {board.default}" for name in compared),
        "bytes",
        "row-gradients",
        "step size",
    ]
    head += ["rounds, bytes, row-gradients to 99% of pooled"] if pooled is not None else []
    sign = 1.0 if lead == "accuracy" else -1.0
    shown = sorted((e for e in entries if e.runs), key=lambda e: -sign * (_mean(e, lead) or 0.0))
    rows = []
    for entry in shown:
        sent, work = (mean_of([float(costs(run)[i]) for run in entry.runs]) for i in (0, 1))
        row = [entry.method, *(_show(_mean(entry, name), SCORES[name]) for name in names)]
        row += [_difference(entry, by_name.get(board.default), name) for name in compared]
        row += [size(sent), f"{work or 0:.3g}"]
        edge = " (edge)" if board.trials > 1 and entry.factor in (board.factors[0], board.factors[-1]) else ""
        row.append(f"{entry.step_size:g}{edge}")
        if pooled is not None:
            row.append(_reached(entry, SHARE * pooled))
        rows.append(row)
    refused = [f"- `{entry.method}` did not run: {entry.refused}" for entry in entries if not entry.runs]
    note = ["", "(edge): the best step size is at the end of the grid; a wider one might do better."]
    return [*table(head, rows), *(note if any("(edge)" in row[-1] + row[-2] for row in rows) else []), "", *refused]


def _overall(board: Board, entries: Sequence[Entry], place: Path) -> list[str]:
    scores, points, leads = {}, {}, set()
    for task in board.tasks:
        mine = [entry for entry in entries if entry.task == task and entry.runs]
        lead = lead_of(mine)
        leads.add(lead)
        sign = 1.0 if lead == "accuracy" else -1.0
        found = {entry.method: value for entry in mine if (value := _mean(entry, lead)) is not None}
        scores[task] = {method: sign * value for method, value in found.items()}
        sent = {entry.method: mean_of([float(costs(run)[0]) for run in entry.runs]) or 1.0 for entry in mine}
        points[task] = {method: (sent[method], scores[task][method]) for method in found}
    lines = ["## Over all tasks", ""]
    common = set.intersection(*(set(row) for row in scores.values())) if scores else set()
    ranks = mean_ranks({task: {m: v for m, v in row.items() if m in common} for task, row in scores.items()})
    if ranks:
        difference = critical_difference(len(ranks), len(scores))
        draw_ranks(ranks, difference, board.default, place / "ranks.png")
        ordered = sorted(ranks, key=lambda name: ranks[name])
        lines += [
            f"Mean ranks over {len(scores)} tasks, of the methods that ran on all of them. Two methods differ at the "
            f"5% level (Nemenyi's test) where their mean ranks are more than {difference:.2f} apart.",
            "",
            *table(["method", "mean rank"], [[name, f"{ranks[name]:.2f}"] for name in ordered]),
            "",
            "![Mean ranks](ranks.png)",
            "",
        ]
    if any(points.values()):
        drawn = {task: found for task, found in points.items() if found}
        metric = "accuracy" if leads == {"accuracy"} else "accuracy, or minus RMSE"
        draw_costs(drawn, metric, board.default, place / "costs.png")
        lines += ["![Score against bytes](costs.png)", ""]
    return lines


def _mean(entry: Entry, metric: str) -> float | None:
    return mean_of([run.final.get(metric) for run in entry.runs])


def _show(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def _difference(entry: Entry, default: Entry | None, metric: str) -> str:
    if default is None or not default.runs or entry.method == default.method:
        return "-"
    ours, theirs = (by_seed(each, metric) for each in (entry, default))
    gaps = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if not gaps:
        return "-"
    mean, low, high = paired_interval(gaps)
    return f"{mean:+.4f}" + (f" [{low:+.4f}, {high:+.4f}]" if low is not None and high is not None else "")


def by_seed(entry: Entry, metric: str) -> dict[int, float]:
    """The final value of a metric for every seed: its mean over clients where each client trains alone."""
    found: dict[int, list[float | None]] = {}
    for run in entry.runs:
        found.setdefault(run.seed, []).append(run.final.get(metric))
    means = {seed: mean_of(values) for seed, values in found.items()}
    return {seed: value for seed, value in means.items() if value is not None}


def _reached(entry: Entry, target: float) -> str:
    found = [reached(run, target) for run in entry.runs]
    if any(each is None for each in found):
        return f"reached by {sum(each is not None for each in found)} of {len(found)}"
    rounds, sent, work = (sum(each[i] for each in found if each) / len(found) for i in range(3))
    return f"{rounds:.0f}, {size(sent)}, {work:.3g}"
