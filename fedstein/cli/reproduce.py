"""The command ``fedstein reproduce``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from fedstein.runs.parallel_jobs import is_finished, run_jobs
from fedstein.studies.reproduce import (
    BEYOND,
    FIGURES,
    SETTINGS,
    Condition,
    Job,
    Plan,
    Verdict,
    make_plan,
    write_conditions,
    write_pages,
)
from fedstein.studies.reproduce.run_lines import Lines, conditions_in, read_lines, without
from fedstein.studies.reproduce.variants import VARIANTS
from fedstein.studies.reproduce.write import number

ORDERS = ("blocks", "dealt", "shuffled")  # the paper's first
LEAST_SEEDS, MOST_SEEDS = 4, 20  # the bounds of --until-decided


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
    order: str | None = None,
    until_decided: bool = False,
    known: Path | None = None,
    looks: int = 1,
) -> None:
    """Run everything that a figure needs, and write the figure, its numbers and its page.

    Args:
        what: A figure of the paper, a comparison beyond it, "steps", "theory", "pages" or "all".
        seeds: The number of seeds, or None for the default.
        rounds: The number of rounds, or None for the default.
        data: "embedded" or "full".
        density: "reference", "log" or "both".
        settings: The panels to draw; empty for all.
        jobs: The number of runs at once, or None for one per core.
        out: The folder for runs, figures and pages.
        quick: Whether to use few rounds and seeds.
        quiet: Whether to print no progress.
        variants: The curves to draw; empty for all.
        order: How clients are numbered: "blocks", "dealt", "shuffled" or "all". None for the default: blocks for the
            figures of the paper, dealt for the studies beyond it.
        until_decided: Whether seeds are added until every comparison is decided.
        known: A file of lines of runs, which are not run again and count for the claims.
        looks: How often verdicts were looked at before seeds were added, this time included.

    Raises:
        InputError: If a name is unknown or nothing is left to draw.
        FedsteinError: If a run fails or the user stops the command.
    """
    for name, got, valid in (
        ("figure", what, [*FIGURES, *BEYOND, "steps", "theory", "pages", "all"]),
        ("value of --data", data, ["embedded", "full"]),
        ("value of --density", density, ["reference", "log", "both"]),
        ("value of --order", order or "blocks", [*ORDERS, "all"]),
    ):
        if got not in valid:
            raise InputError(unknown(name, got, valid))
    for setting in settings:
        if setting not in SETTINGS:
            raise InputError(unknown("value of --setting", setting, list(SETTINGS)))
    for variant in variants:
        if variant not in VARIANTS:
            raise InputError(unknown("value of --variant", variant, list(VARIANTS)))
    if what in ("steps", "theory") and (order is not None or until_decided):
        raise InputError(f"{what} has one order of clients and its own seeds; leave --order and --until-decided out")
    if what == "theory" and density == "both":
        raise InputError("theory is measured with one density at a time; use --density reference or --density log")
    if until_decided and what in BEYOND:
        raise InputError(f"--until-decided is for the claims of the paper, {what} has none; leave it out")
    check_known(what, known, looks, data, until_decided)
    lines = read_lines(known) if known else {}
    if what == "pages":
        command = command_line(what, None, None, data, "reference", [], False, known=known, looks=looks)
        conditions = [Condition(*each) for each in conditions_in(lines, ORDERS)]
        write_pages(lines, conditions, out, command, looks)
        if not quiet:
            print(f"pages: {out / 'sentences.md'}, {out / 'dependence.md'}")
        return
    if what == "steps":
        tune_figures(settings, seeds or 1, rounds, out, quiet)
        return
    workers = jobs or cores()
    command = command_line(
        what, seeds, rounds, data, density, settings, quick, variants, order, until_decided, known, looks
    )
    full = data == "full"
    if what != "theory":
        figures = list(FIGURES) if what == "all" else [what]
        conditions = conditions_of(order or ("dealt" if what in BEYOND else "blocks"), density)

        def plans(count: int | None) -> dict[Condition, Plan]:
            made = {
                condition: make_plan(
                    figures,
                    seeds=count,
                    rounds=rounds,
                    density=condition.density,
                    full=full,
                    quick=quick,
                    settings=settings,
                    variants=variants,
                    order=condition.order,
                )
                for condition in conditions
            }
            if not any(plan.jobs for plan in made.values()):
                wanted = [*settings, *variants]
                raise InputError(f"{what} has no panel with {' or '.join(wanted)}; leave out --setting and --variant")
            return made

        if until_decided:
            draw_until_decided(plans, seeds or MOST_SEEDS, out, workers, command, quiet)
        else:
            draw_figures(plans(seeds), out, workers, command, quiet, known=lines, looks=looks)
    elif settings:
        raise InputError("theory is measured with 30 BLR clients only; leave --setting out")
    if what == "theory" or (what == "all" and (not settings or "blr30" in settings)):
        measure_theory(seeds, rounds, density, full, quick, out, workers, command, quiet)


def check_known(what: str, known: Path | None, looks: int, data: str, until_decided: bool) -> None:
    """Refuse options that cannot be combined with --known and --looks.

    Raises:
        InputError: They are asked for although they would be ignored or wrong, or pages are asked for without lines.
    """
    if what == "pages" and known is None:
        raise InputError("pages are made from lines of runs; name their file: --known experiments/orders/runs.csv")
    if known is not None and (what in ("steps", "theory", "all") or data == "full"):
        raise InputError("--known is for figures with the embedded data and for pages; leave it out")
    if until_decided and (known is not None or looks > 1):
        raise InputError("--until-decided looks at its own seeds, as often as it likes; leave --known and --looks out")
    if looks > 1 and what not in (*FIGURES, "all", "pages"):
        raise InputError(f"--looks is for the claims of the paper, {what} has none; leave it out")


def conditions_of(order: str, density: str) -> list[Condition]:
    """The conditions that the options name, the paper's order and density first."""
    orders = ORDERS if order == "all" else (order,)
    densities = ("reference", "log") if density == "both" else (density,)
    return [Condition(each, kde) for each in orders for kde in densities]


def draw_figures(
    plans: Mapping[Condition, Plan],
    out: Path,
    workers: int,
    command: str,
    quiet: bool,
    rule: str = "student",
    known: Lines | None = None,
    looks: int = 1,
) -> list[Verdict]:
    """Run the jobs of plans, write their figures and pages, and print the verdicts on the claims.

    Jobs that have a line in ``known`` are not run; if their folder exists all the same, it is drawn.
    """
    jobs = list(dict.fromkeys(job for plan in plans.values() for job in plan.jobs))
    left = set(without(jobs, known or {}))
    jobs = [job for job in jobs if job in left or is_finished(out / "runs" / job.name)]
    jobs.sort(key=lambda job: job.seed)  # whole comparisons first
    figures = next(iter(plans.values())).figures
    with show_jobs(jobs, ", ".join(figures), out, workers, quiet) as on_progress:
        folders = run_jobs(jobs, out / "runs", workers, on_progress)
    verdicts = write_conditions(plans, folders, out, command, rule, known, looks)
    if not quiet:
        if verdicts:
            Console(markup=False).print(verdict_table(verdicts))
        page = "claims.html" if verdicts and len(plans) == 1 else "sentences.md"
        page = f"{figures[0]}.md" if figures[0] in BEYOND else page
        print(f"figures and numbers: {out}    page: {out / page}")
    return verdicts


def draw_until_decided(
    plans: Callable[[int | None], Mapping[Condition, Plan]],
    most: int,
    out: Path,
    workers: int,
    command: str,
    quiet: bool,
) -> None:
    """Add seeds until every comparison is decided by the confidence sequence, or there are ``most`` of them."""
    for count in range(min(LEAST_SEEDS, most), most + 1):
        verdicts = draw_figures(plans(count), out, workers, command, quiet, "sequence")
        open_ones = [verdict for verdict in verdicts if not verdict.decided]
        if not quiet:
            say(f"{count} seeds: {len(open_ones)} of {len(verdicts)} comparisons undecided")
        if not open_ones:
            return


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
        folders = run_jobs(jobs, out / "runs", workers, on_progress, theory_command)
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
    order: str | None = None,
    until_decided: bool = False,
    known: Path | None = None,
    looks: int = 1,
) -> str:
    """Return the command that makes a page, with only the options that change its result."""
    words = ["fedstein", "reproduce", what]
    words += ["--seeds", str(seeds)] if seeds else []
    words += ["--rounds", str(rounds)] if rounds else []
    words += ["--data", data] if data != "embedded" else []
    words += ["--density", density] if density != "reference" else []
    words += [word for setting in settings for word in ("--setting", setting)]
    words += [word for variant in variants for word in ("--variant", variant)]
    words += ["--order", order] if order else []
    words += ["--until-decided"] if until_decided else []
    words += ["--known", known.name] if known else []
    words += ["--looks", str(looks)] if looks > 1 else []
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
