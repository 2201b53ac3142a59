"""Printing: plain lines go to standard output, and a failure is one line on standard error.

The command line, the Flower server process and the processes of a study print through these functions.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

LINES = 20  # about how many lines ``progress_lines`` prints for one run
COMPILING = 2  # rounds that compile: the first one, and the second one where a client has a state for the first time

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


def progress_lines(rounds: int) -> OnRound:
    """Make a callback that prints about ``LINES`` lines of progress over a run.

    Args:
        rounds: The number of rounds of the run.

    Returns:
        A function to call with the record of every round.
    """
    every = max(1, rounds // LINES)
    estimate, first = time_left(rounds), 0

    def on_round(record: Mapping[str, Any]) -> None:
        nonlocal first
        index, left = record["round"], estimate(record["round"], time.monotonic())
        first = first or index
        if index % every and index != rounds and index != first:
            return
        seconds = "" if left is None else f"  {left:.0f} s left"
        say(f"round {index}/{rounds}  {scores(record)}  client {selected_clients(record)}{seconds}")

    return on_round


def time_left(rounds: int) -> Callable[[int, float], float | None]:
    """Make a function that estimates the remaining seconds.

    The first rounds of a process compile and say nothing about the others, so the estimate begins after them.

    Args:
        rounds: The number of rounds of the run.

    Returns:
        Round that has ended, time in seconds -> the seconds that remain; None while there is no estimate.
    """
    ends: list[tuple[int, float]] = []

    def estimate(index: int, now: float) -> float | None:
        ends.append((index, now))
        if len(ends) <= COMPILING:
            return None
        first, began = ends[COMPILING - 1]
        return (now - began) / (index - first) * (rounds - index)

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


def selected_clients(record: Mapping[str, Any]) -> str:
    """List the ids of the clients that trained in a round: at most four, then the number of the others."""
    selected = record["selected"]
    return ",".join(map(str, selected[:4])) + (f",+{len(selected) - 4}" if len(selected) > 4 else "")
