"""The progress of one run: a live bar on a terminal and in a notebook, plain lines elsewhere, nothing with --quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from fedstein.console import OnRound, progress_lines, say, scores, selected_clients, time_left

if TYPE_CHECKING:
    from rich.console import Console

MARGIN = 4  # columns that the bar leaves free
EVERY = 0.2  # seconds between two changes of a notebook's bar


@contextmanager
def show_progress(rounds: int, quiet: bool, names: Sequence[str] = ()) -> Iterator[OnRound]:
    """Show the progress of one run.

    Args:
        rounds: The number of rounds of the run.
        quiet: Whether to show nothing.
        names: The names of the clients by id.

    Yields:
        A function to call with the record of every round.
    """
    if quiet:
        yield lambda record: None
    elif sys.stdout.isatty():
        with live_bar(rounds, names) as on_round:
            yield on_round
    elif in_notebook():
        yield notebook_bar(rounds, names)
    else:
        yield progress_lines(rounds, names)


def pass_lines(quiet: bool, every: float = 2.0) -> Callable[[str], None]:
    """Make a function that prints what the passes after the rounds say, at most a line every few seconds.

    Args:
        quiet: Whether to print nothing.
        every: The seconds between two lines about passes; other lines are always printed.

    Returns:
        The function.
    """
    said = -every

    def line(text: str) -> None:
        nonlocal said
        now = time.monotonic()
        if quiet or (text.startswith("pass ") and now - said < every):
            return
        said = now
        say(text)

    return line


@contextmanager
def live_bar(rounds: int, names: Sequence[str] = ()) -> Iterator[OnRound]:
    """Show a bar on the terminal, with the scores and the clients of the last round."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[status]}"),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=narrow_console(), expand=True) as progress:
        task = progress.add_task("rounds", total=rounds, status="compiling ...", left="")
        shown, estimate = "", time_left(rounds)

        def on_round(record: Mapping[str, Any]) -> None:
            nonlocal shown
            shown = scores(record) or shown
            status = f"{shown}  client {selected_clients(record, names)}"
            left = estimate(record, time.monotonic())
            progress.update(
                task, completed=record["round"], status=status, left="" if left is None else f"{left:.0f} s left"
            )

        yield on_round


def narrow_console() -> Console:
    """The terminal for a bar, a little narrower than it is.

    The ``^C`` that a terminal prints behind the bar must not wrap, or a second bar would be drawn below the first.
    """
    from rich.console import Console  # imported here, because most uses of ``fedstein.fit`` show no bar

    return Console(width=max(MARGIN + 1, Console().width - MARGIN))


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows what IPython's ``display`` is given."""
    ipython = sys.modules.get("IPython")  # a notebook has already imported IPython
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def notebook_bar(rounds: int, names: Sequence[str] = ()) -> OnRound:
    """Show a bar below the cell of a notebook, with the scores and the clients of the last round.

    It is one output that is changed, so that the cell ends with a single line.

    Args:
        rounds: The number of rounds of the run.
        names: The names of the clients by id.

    Returns:
        A function to call with the record of every round.
    """
    from IPython.display import display

    def shown_as(done: int, status: str) -> dict[str, str]:
        bar = f'<progress value="{done}" max="{rounds}" style="width: 16em"></progress>'
        text = f"round {done}/{rounds}  {status}"
        return {"text/plain": text, "text/html": f"<div>{bar} {escape(text)}</div>"}

    handle = display(shown_as(0, "compiling ..."), raw=True, display_id=True)
    shown, estimate, drawn = "", time_left(rounds), 0.0

    def on_round(record: Mapping[str, Any]) -> None:
        nonlocal shown, drawn
        index, now = record["round"], time.monotonic()
        shown = scores(record) or shown
        left, last = estimate(record, now), index == rounds or bool(record.get("stopped"))
        if now - drawn < EVERY and not last:
            return
        drawn = now
        seconds = "" if left is None or last else f"  {left:.0f} s left"
        handle.update(shown_as(index, f"{shown}  client {selected_clients(record, names)}{seconds}"), raw=True)

    return on_round
