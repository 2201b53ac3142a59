"""Progress: a live bar on a terminal, plain lines in a pipe, nothing with --quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from fedstein.cli import say

LINES = 20  # how many plain lines a run prints in a pipe, about

OnRound = Callable[[Mapping[str, Any]], None]


@contextmanager
def show_progress(rounds: int, quiet: bool) -> Iterator[OnRound]:
    """A callable to be called with every round's record."""
    if quiet:
        yield lambda record: None
    elif sys.stdout.isatty():
        with live_bar(rounds) as on_round:
            yield on_round
    else:
        yield plain_lines(rounds)


@contextmanager
def live_bar(rounds: int) -> Iterator[OnRound]:
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
            status = f"{shown}  client {names(record)}"
            progress.update(task, completed=record["round"], status=status)

        yield on_round


def plain_lines(rounds: int) -> OnRound:
    every = max(1, rounds // LINES)
    first: tuple[int, float] | None = None  # the first round compiles; the pace is that of the others

    def on_round(record: Mapping[str, Any]) -> None:
        nonlocal first
        number, now = record["round"], time.monotonic()
        first = first or (number, now)
        if number % every and number != rounds and number != first[0]:
            return
        left = ""
        if number > first[0]:
            left = f"  {(now - first[1]) / (number - first[0]) * (rounds - number):.0f} s left"
        say(f"round {number}/{rounds}  {scores(record)}  client {names(record)}{left}")

    return on_round


def scores(record: Mapping[str, Any]) -> str:
    """The two numbers people look at; nothing on a round that was not evaluated."""
    lead = "accuracy" if record["accuracy"] is not None else "rmse"
    found = [(name, record[name]) for name in (lead, "nll") if record[name] is not None]
    return "  ".join(f"{name} {value:.4f}" for name, value in found)


def names(record: Mapping[str, Any]) -> str:
    selected = record["selected"]
    return ",".join(map(str, selected[:4])) + (f",+{len(selected) - 4}" if len(selected) > 4 else "")


@contextmanager
def show_share(quiet: bool) -> Iterator[Callable[[float, str], None]]:
    """A bar over all runs with the time left; plain lines in a pipe."""
    if quiet:
        yield lambda share, doing: None
    elif sys.stdout.isatty():
        columns = (TaskProgressColumn(), BarColumn(), TextColumn("{task.fields[doing]}"), TimeRemainingColumn())
        with Progress(*columns, console=Console(), speed_estimate_period=600) as progress:
            task = progress.add_task("runs", total=1.0, doing="")
            yield lambda share, doing: progress.update(task, completed=share, doing=doing[:60])
    else:
        yield plain_share()


def plain_share(every: float = 15.0) -> Callable[[float, str], None]:
    began, said, start = time.monotonic(), 0.0, -1.0

    def on_progress(share: float, doing: str) -> None:
        nonlocal said, start
        now = time.monotonic()
        start = share if start < 0 else start  # what earlier calls had done already
        if now - said < every and share < 1:
            return
        said = now
        left = ""
        if start < share < 1:
            left = f"  about {(now - began) / (share - start) * (1 - share) / 60:.1f} min left"
        say(f"{share:4.0%}  {doing}{left}")

    return on_progress
