"""``fedstein reproduce``."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedstein import data as datasets
from fedstein.cli import say
from fedstein.errors import FedsteinError, InputError
from fedstein.reproduce import FIGURES, SETTINGS, Verdict, make_plan, work_off, write_results
from fedstein.reproduce.write import number
from fedstein.runs.config import unknown


def reproduce_figures(
    what: str,
    seeds: int | None,
    rounds: int | None,
    data: str,
    density: str,
    jobs: int | None,
    out: Path,
    quick: bool,
    quiet: bool,
) -> None:
    for name, got, valid in (
        ("figure", what, [*FIGURES, "all"]),
        ("value of --data", data, ["embedded", "full"]),
        ("value of --density", density, ["reference", "log"]),
    ):
        if got not in valid:
            raise InputError(unknown(name, got, valid))
    figures = list(FIGURES) if what == "all" else [what]
    plan = make_plan(figures, seeds=seeds, rounds=rounds, density=density, full=data == "full", quick=quick)
    if data == "full":
        for name in {SETTINGS[job.setting].data["name"] for job in plan.jobs}:
            datasets.load(f"{name}-full")  # says how to fetch it where it is missing
    workers = jobs or os.cpu_count() or 1
    if not quiet:
        say(f"{', '.join(figures)}: {len(plan.jobs)} runs, {workers} side by side, in {out}")
    try:
        with show_share(quiet) as on_progress:
            folders = work_off(plan.jobs, out, workers, on_progress)
    except KeyboardInterrupt:
        raise FedsteinError(f"stopped; the same command goes on where it stopped, in {out}") from None
    verdicts = write_results(plan, folders, out, command_line(what, seeds, rounds, data, density, quick))
    if not quiet:
        Console(markup=False).print(verdict_table(verdicts))
        print(f"figures and claims: {out}    page: {out / 'claims.html'}")


def command_line(what: str, seeds: int | None, rounds: int | None, data: str, density: str, quick: bool) -> str:
    """The command that made a page, without what does not change it."""
    words = ["fedstein", "reproduce", what]
    words += ["--seeds", str(seeds)] if seeds else []
    words += ["--rounds", str(rounds)] if rounds else []
    words += ["--data", data] if data != "embedded" else []
    words += ["--density", density] if density != "reference" else []
    words += ["--quick"] if quick else []
    return shlex.join(words)


def verdict_table(verdicts: list[Verdict]) -> Table:
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("figure", "setting", "claim", "effect", "verdict"):
        grid.add_column(column, justify="right" if column == "effect" else "left")
    for v in verdicts:
        grid.add_row(v.claim.figure, v.claim.setting, v.claim.text, number(v.effect, "+"), v.word)
    return grid


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
