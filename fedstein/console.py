"""Printing: plain lines go to standard output, and a failure is one line on standard error.

The command line, the Flower server process and the processes of a study print through these functions.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any, NoReturn

LINES = 20  # about how many lines ``progress_lines`` prints for one run
COMPILING = 2  # rounds that compile: the first one, and the second one, in which a client first has a state
SLOW = 3  # a round that takes this many times as long as usual, and trains a new client, has compiled

OnRound = Callable[[Mapping[str, Any]], None]


def say(text: str) -> None:
    """Print a line on standard output. A reader that has closed the pipe does not stop the program.

    Args:
        text: The line, without its line break.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        silence()


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 round, 2 rounds.

    Args:
        count: The number.
        noun: The noun in the singular; its plural ends in s.
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def silence() -> None:
    """Discard all further standard output, so that Python reports no broken pipe when the process ends."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the file stays open as long as the process lives


def fail(message: str, code: int) -> NoReturn:
    """Print a failure as one line on standard error and end the process.

    Args:
        message: What went wrong. Line breaks in it become spaces.
        code: The exit code of the process.

    Raises:
        SystemExit: Always.
    """
    print("fedstein: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)


def progress_lines(rounds: int, names: Sequence[str] = ()) -> OnRound:
    """Make a callback that prints about ``LINES`` lines of progress over a run.

    Args:
        rounds: The number of rounds of the run.
        names: The names of the clients by id.

    Returns:
        A function to call with the record of every round.
    """
    every = max(1, rounds // LINES)
    estimate, first = time_left(rounds), 0

    def on_round(record: Mapping[str, Any]) -> None:
        nonlocal first
        index, left = record["round"], estimate(record, time.monotonic())
        first = first or index
        if index % every and index != rounds and index != first:
            return
        seconds = "" if left is None else f"  {left:.0f} s left"
        say(f"round {index}/{rounds}  {scores(record)}  client {selected_clients(record, names)}{seconds}")

    return on_round


def time_left(rounds: int) -> Callable[[Mapping[str, Any], float], float | None]:
    """Make a function that estimates the remaining seconds.

    The first rounds of a process compile and say nothing about the others, so the estimate begins after them. A later
    round compiles too if a client trains for the first time and has another number of rows than the clients before
    it. Such a round counts only if it took about as long as the others.

    Args:
        rounds: The number of rounds of the run.

    Returns:
        Record of a round that has ended, time in seconds -> the seconds that remain; None while there is no estimate.
    """
    seen: set[int] = set()
    ends: list[float] = []
    known: list[float] = []  # the seconds of rounds of clients that had trained before
    new: list[float] = []  # the seconds of rounds in which a client trained for the first time

    def estimate(record: Mapping[str, Any], now: float) -> float | None:
        ends.append(now)
        if len(ends) > COMPILING:
            (known if seen.issuperset(record["selected"]) else new).append(now - ends[-2])
        seen.update(record["selected"])
        if not known and not new:
            return None
        usual = SLOW * median(known or new)
        counted = [*known, *(seconds for seconds in new if seconds <= usual)]
        return fmean(counted) * (rounds - record["round"])

    return estimate


def scores(record: Mapping[str, Any]) -> str:
    """Format the leading metric and the NLL of a round.

    Args:
        record: The record of one round.

    Returns:
        The two numbers with their names. The text is empty if the round was not evaluated.
    """
    lead = "accuracy" if record["accuracy"] is not None else "rmse"
    found = [(name, record[name]) for name in (lead, "nll") if record[name] is not None]
    return "  ".join(f"{name} {value:.4f}" for name, value in found)


def selected_clients(record: Mapping[str, Any], names: Sequence[str] = ()) -> str:
    """List the clients that trained in a round: at most four, then the number of the others.

    Args:
        record: The record of one round.
        names: The names of the clients by id. A client without a name of its own is listed by its id.

    Returns:
        The list, separated by commas.
    """

    def called(client: int) -> str:
        name = names[client] if client < len(names) else ""
        return str(client) if name in ("", f"client-{client}") else name

    selected = record["selected"]
    return ",".join(map(called, selected[:4])) + (f",+{len(selected) - 4}" if len(selected) > 4 else "")
