"""The command ``fedstein leaderboard``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedstein.cli.progress import show_share
from fedstein.console import say
from fedstein.errors import FedsteinError
from fedstein.machine import cores
from fedstein.studies.leaderboard import play_board, read_board, write_page


def run_leaderboard(plan: Path, tasks: Sequence[str], jobs: int | None, out: Path, quiet: bool) -> None:
    """Tune and run every method on every task, and write the page.

    Args:
        plan: The TOML file.
        tasks: The tasks of the plan to run; all if there are none.
        jobs: The number of runs at once, None for one per core, 0 for one after another in this process.
        out: The folder for trials, runs and the page.
        quiet: Whether to print no progress.

    Raises:
        InputError: The plan or the folder cannot be used.
        FedsteinError: A run failed, or the user stopped the command.
    """
    board = read_board(plan).only(tasks)
    if not quiet:
        say(f"{len(board.tasks)} tasks x {len(board.methods)} methods x {board.seeds} seeds, in {out}")
    try:
        with show_share(quiet) as on_progress:
            entries = play_board(board, out, cores() if jobs is None else jobs, on_progress)
    except KeyboardInterrupt:
        raise FedsteinError("stopped; the same command goes on where it stopped") from None
    page = write_page(board, entries, out)
    if not quiet:
        for entry in entries:
            if entry.refused:
                say(f"{entry.method} on {entry.task} did not run: {entry.refused}")
    say(f"leaderboard: {page}")
