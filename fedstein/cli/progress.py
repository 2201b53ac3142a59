"""Progress: a live bar on a terminal, plain lines in a pipe, nothing with --quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from fedstein.console import say
from fedstein.progress import narrow_console
from fedstein.progress import pass_lines as pass_lines
from fedstein.progress import show_progress as show_progress


@contextmanager
def show_share(quiet: bool) -> Iterator[Callable[[float, str], None]]:
    """Show the progress of several runs together, with the estimated remaining time.

    Args:
        quiet: Whether to show nothing.

    Yields:
        A function to call with the share of the work that is done (0 to 1) and a description of the current work.
    """
    if quiet:
        yield lambda share, doing: None
    elif sys.stdout.isatty():
        columns = (TaskProgressColumn(), BarColumn(), TextColumn("{task.fields[doing]}"), TimeRemainingColumn())
        with Progress(*columns, console=narrow_console(), speed_estimate_period=600) as progress:
            task = progress.add_task("runs", total=1.0, doing="")
            yield lambda share, doing: progress.update(task, completed=share, doing=doing[:60])
    else:
        yield plain_share()


def plain_share(every: float = 15.0) -> Callable[[float, str], None]:
    """Make a callback that prints a line at most every ``every`` seconds."""
    began, said, start = time.monotonic(), 0.0, -1.0

    def on_progress(share: float, doing: str) -> None:
        nonlocal said, start
        now = time.monotonic()
        start = share if start < 0 else start  # the share that earlier calls have completed
        if now - said < every and share < 1:
            return
        said = now
        left = ""
        if start < share < 1:
            left = f"  about {(now - began) / (share - start) * (1 - share) / 60:.1f} min left"
        say(f"{share:4.0%}  {doing}{left}")

    return on_progress
