"""The command ``fedstein reproduce``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedstein import data as datasets
from fedstein.cli.progress import show_share
from fedstein.console import say
from fedstein.errors import FedsteinError, InputError
from fedstein.machine import cores
from fedstein.runs.config import unknown
from fedstein.runs.side_by_side import work_off
from fedstein.studies.reproduce import BEYOND, FIGURES, SETTINGS, Job, Plan, Verdict, make_plan, write_results
from fedstein.studies.reproduce.variants import VARIANTS
from fedstein.studies.reproduce.write import number


def reproduce_figures(
    what: str,
    seeds: int | None,
    rounds: int | None,
    data: str,
    density: str,
    settings: list[str],
    jobs: int | None,
    out: Path,
    quick: bool,
    quiet: bool,
    variants: Sequence[str] = (),
) -> None:
    """Run everything that a figure needs, and write the figure, its numbers and its page.

    Args:
        what: A figure of the paper, a comparison beyond it, "steps", "theory" or "all".
        seeds: The number of seeds, or None for the default.
        rounds: The number of rounds, or None for the default.
        data: "embedded" or "full".
        density: "reference" or "log".
        settings: The panels to draw; empty for all.
        jobs: The number of runs at once, or None for one per core.
        out: The folder for runs, figures and pages.
        quick: Whether to use few rounds and seeds.
        quiet: Whether to print no progress.
        variants: The curves to draw; empty for all.

    Raises:
        InputError: If a name is unknown or nothing is left to draw.
        FedsteinError: If a run fails or the user stops the command.
    """
    for name, got, valid in (
        ("figure", what, [*FIGURES, *BEYOND, "steps", "theory", "all"]),
        ("value of --data", data, ["embedded", "full"]),
        ("value of --density", density, ["reference", "log"]),
    ):
        if got not in valid:
            raise InputError(unknown(name, got, valid))
    for setting in settings:
        if setting not in SETTINGS:
            raise InputError(unknown("value of --setting", setting, list(SETTINGS)))
    for variant in variants:
        if variant not in VARIANTS:
            raise InputError(unknown("value of --variant", variant, list(VARIANTS)))
    if what == "steps":
        tune_figures(settings, seeds or 1, rounds, out, quiet)
        return
    workers = jobs or cores()
    command = command_line(what, seeds, rounds, data, density, settings, quick, variants)
    full = data == "full"
    if what != "theory":
        figures = list(FIGURES) if what == "all" else [what]
        plan = make_plan(
            figures,
            seeds=seeds,
            rounds=rounds,
            density=density,
            full=full,
            quick=quick,
            settings=settings,
            variants=variants,
        )
        if not plan.jobs:
            wanted = [*settings, *variants]
            raise InputError(f"{what} has no panel with {' or '.join(wanted)}; leave out --setting and --variant")
        draw_figures(plan, out, workers, command, quiet)
    elif settings:
        raise InputError("theory is measured with 30 BLR clients only; leave --setting out")
    if what == "theory" or (what == "all" and (not settings or "blr30" in settings)):
        measure_theory(seeds, rounds, density, full, quick, out, workers, command, quiet)


def draw_figures(plan: Plan, out: Path, workers: int, command: str, quiet: bool) -> None:
    """Run the jobs of a plan, write its figures, and print the verdicts on the claims."""
    with show_jobs(plan.jobs, ", ".join(plan.figures), out, workers, quiet) as on_progress:
        folders = work_off(plan.jobs, out / "runs", workers, on_progress)
    verdicts = write_results(plan, folders, out, command)
    if not quiet:
        if verdicts:
            Console(markup=False).print(verdict_table(verdicts))
        page = "claims.html" if verdicts else f"{plan.figures[0]}.md"
        print(f"figures and numbers: {out}    page: {out / page}")


def tune_figures(settings: Sequence[str], seeds: int, rounds: int | None, out: Path, quiet: bool) -> None:
    """Tune the step sizes of the comparison on held-out training rows."""
    from fedstein.studies.reproduce.step_sizes import curves_of, tune_all, write_steps

    for setting in settings:
        if setting not in BEYOND["sites"].panels:
            raise InputError(unknown("setting with step sizes to tune", setting, BEYOND["sites"].panels))
    trials = []
    try:
        for setting, method, trial in tune_all(settings or BEYOND["sites"].panels, seeds, rounds, out / "steps"):
            trials.append((setting, method, trial))
            if not quiet:
                score = "diverged" if trial.accuracy is None else f"{trial.accuracy:.4f}"
                say(f"{setting} {method}: step size {trial.step_size:g}, seed {trial.seed}: {score}")
    except KeyboardInterrupt:
        raise FedsteinError(f"stopped; the same command goes on where it stopped, in {out}") from None
    lines = write_steps(curves_of(trials), out)
    if not quiet:
        for line in lines:
            say(line)
        print(f"numbers and figure: {out}    page: {out / 'steps.md'}")


def measure_theory(
    seeds: int | None,
    rounds: int | None,
    density: str,
    full: bool,
    quick: bool,
    out: Path,
    workers: int,
    command: str,
    quiet: bool,
) -> None:
    """Measure the indicators of section III against the true decrease of the free energies."""
    from fedstein.studies.reproduce.theory.runs import (  # imported here because it imports JAX
        theory_command,
        theory_jobs,
    )
    from fedstein.studies.reproduce.theory.write import write_theory

    jobs = theory_jobs(seeds, rounds, density, full, quick)
    with show_jobs(jobs, "theory", out, workers, quiet) as on_progress:
        folders = work_off(jobs, out / "runs", workers, on_progress, theory_command)
    lines = write_theory(jobs, folders, out, command)
    if not quiet:
        for line in lines:
            say(line)
        print(f"numbers and figure: {out}    page: {out / 'theory.md'}")


@contextmanager
def show_jobs(
    jobs: Sequence[Job], title: str, out: Path, workers: int, quiet: bool
) -> Iterator[Callable[[float, str], None]]:
    """Announce a series of runs and show its progress. Missing datasets are reported before anything is run."""
    if any(job.full for job in jobs):
        for name in {SETTINGS[job.setting].data["name"] for job in jobs}:
            datasets.load(f"{name}-full")  # if it is missing, the message says how to download it
    if not quiet:
        say(f"{title}: {len(jobs)} runs, {workers} side by side, in {out}")
    try:
        with show_share(quiet) as on_progress:
            yield on_progress
    except KeyboardInterrupt:
        raise FedsteinError(f"stopped; the same command goes on where it stopped, in {out}") from None


def command_line(
    what: str,
    seeds: int | None,
    rounds: int | None,
    data: str,
    density: str,
    settings: list[str],
    quick: bool,
    variants: Sequence[str] = (),
) -> str:
    """Return the command that makes a page, with only the options that change its result."""
    words = ["fedstein", "reproduce", what]
    words += ["--seeds", str(seeds)] if seeds else []
    words += ["--rounds", str(rounds)] if rounds else []
    words += ["--data", data] if data != "embedded" else []
    words += ["--density", density] if density != "reference" else []
    words += [word for setting in settings for word in ("--setting", setting)]
    words += [word for variant in variants for word in ("--variant", variant)]
    words += ["--quick"] if quick else []
    return shlex.join(words)


def verdict_table(verdicts: list[Verdict]) -> Table:
    """Build the table of the verdicts on the claims."""
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("figure", "setting", "claim", "effect", "verdict"):
        grid.add_column(column, justify="right" if column == "effect" else "left")
    for v in verdicts:
        grid.add_row(v.claim.figure, v.claim.setting, v.claim.text, number(v.effect, "+"), v.word)
    return grid
