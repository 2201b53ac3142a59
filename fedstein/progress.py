"""The progress of one run: a live bar on a terminal, plain lines elsewhere, nothing where it is quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedstein.console import OnRound, progress_lines, scores, selected_clients


@contextmanager
def show_progress(rounds: int, quiet: bool) -> Iterator[OnRound]:
    """Show the progress of one run.

    Args:
        rounds: The number of rounds of the run.
        quiet: Whether to show nothing.

    Yields:
        A function to call with the record of every round.
    """
    if quiet:
        yield lambda record: None
    elif sys.stdout.isatty():
        with live_bar(rounds) as on_round:
            yield on_round
    else:
        yield progress_lines(rounds)


@contextmanager
def live_bar(rounds: int) -> Iterator[OnRound]:
    """Show a bar on the terminal, with the scores and the clients of the last round."""
    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(), expand=True) as progress:
        task = progress.add_task("rounds", total=rounds, status="compiling ...")
        shown = ""

        def on_round(record: Mapping[str, Any]) -> None:
            nonlocal shown
            shown = scores(record) or shown
            status = f"{shown}  client {selected_clients(record)}"
            progress.update(task, completed=record["round"], status=status)

        yield on_round
