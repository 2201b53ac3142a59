"""The page of a leaderboard: tables for each task, then standings over tasks, and two figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedstein.files import disk_errors, write_bytes
from fedstein.studies.leaderboard.overall import overall
from fedstein.studies.leaderboard.plan import Board
from fedstein.studies.leaderboard.play import Entry, note_of
from fedstein.studies.leaderboard.scores import references
from fedstein.studies.leaderboard.task_tables import task_tables


def write_page(board: Board, entries: Sequence[Entry], place: Path) -> Path:
    """Write ``leaderboard.md`` and its figures.

    Args:
        board: The plan.
        entries: What came of it.
        place: The folder.

    Returns:
        The page.
    """
    lines = ["# Leaderboard", "", *_head(board, entries), ""]
    for task in board.tasks:
        lines += [f"## {task}", "", *task_tables(board, [entry for entry in entries if entry.task == task]), ""]
    with disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        lines += overall(board, entries, place)
        path = place / "leaderboard.md"
        write_bytes(path, ("\n".join(lines).rstrip() + "\n").encode())
    return path


def _head(board: Board, entries: Sequence[Entry]) -> list[str]:
    tasks = f"{len(board.tasks)} task" + ("s" if len(board.tasks) > 1 else "")
    said = (
        f"{tasks}, {len(board.methods)} methods, {board.seeds} seeds. {note_of(board)} Scores are "
        "those of the last round on the test rows, means over seeds. Differences are paired by seed against "
        f"`{board.default}`, with Student's 95% interval. Test rows are the same for every seed: intervals are about "
        "partitions and random numbers, not about other test rows."
    )
    if board.seeds < 5 or len(board.tasks) < 5:
        said += " Few seeds make intervals wide, and ranks over few tasks decide little."
    if drawn := sorted({entry.method for entry in entries if entry.quoted}):
        said += f" Scores of {', '.join(drawn)} are those of the draws that it predicts with after the last round."
    if found := sorted(references(board, entries)):
        said += f" References, which are no federated methods: {', '.join(found)}."
    if board.ood:
        kinds = ", ".join(f"the rows of {dataset} for {task}" for task, dataset in board.ood.items())
        said += f" `ood auroc` is how well the entropy of predictions tells foreign rows from test rows: {kinds}."
    seconds = sum(float((run.summary or {}).get("seconds") or 0.0) for entry in entries for run in entry.runs)
    return [f"{said} The runs took {seconds / 60:.1f} minutes by the clock, trials not counted."]
