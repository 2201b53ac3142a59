"""The command ``fedstein resume``: a run, or the runs of a folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fedstein.cli.compare import print_comparison
from fedstein.cli.progress import pass_lines, show_progress, show_share
from fedstein.cli.run import print_results
from fedstein.console import say
from fedstein.errors import FedsteinError, InputError
from fedstein.loggers import make_loggers
from fedstein.machine import cores
from fedstein.report import write_report
from fedstein.report.find import runs_below
from fedstein.runs import runner
from fedstein.runs.config import Config, load_config
from fedstein.runs.extending import depends_on_total, extend
from fedstein.runs.jax_setup import start_jax
from fedstein.runs.parallel_jobs import is_finished, run_jobs
from fedstein.runs.pruning import is_pruned
from fedstein.runs.series import Series, SeriesRun, check_place, read_series, write_series


def resume_folder(path: Path, rounds: int | None, jobs: int | None, quiet: bool, log: Sequence[str] = ()) -> None:
    """Continue a run, or every unfinished run of a folder.

    Args:
        path: A run folder, or a folder of runs.
        rounds: A new total of rounds, or None.
        jobs: For a folder of runs: how many are active at once; None for one per core.
        quiet: Whether to print no progress.
        log: The loggers to write to; for one run only.

    Raises:
        InputError: If there is nothing that can continue.
        FedsteinError: If a run fails or the user stops the command.
    """
    if path.is_dir() and not (path / "config.toml").exists():
        if log:
            raise InputError(f"--log is for one run, {path} holds several; resume each with its own --log")
        resume_series(path, rounds, jobs, quiet)
    elif jobs is not None:
        raise InputError(f"--jobs is for a folder of several runs, {path} is one run; leave it out")
    else:
        resume_run(path, rounds, quiet, log)


def resume_run(path: Path, rounds: int | None, quiet: bool, log: Sequence[str] = ()) -> None:
    """Continue one run.

    Args:
        path: The run folder.
        rounds: A new total of rounds, or None.
        quiet: Whether to print no progress.
        log: The loggers to write to.

    Raises:
        InputError: If the folder holds no run that can continue, or a logger is not installed.
    """
    loggers = make_loggers(log, path)
    if rounds is not None:
        _, config = extend(path, rounds)
        if (reason := depends_on_total(config)) is not None:
            print(f"fedstein: note: {reason}", file=sys.stderr)
    folder, config = runner.open_run(path)
    if is_pruned(path):
        print(
            "fedstein: note: the sites of the finished run were pruned; they are expanded anew at its last particles, "
            "so the further rounds are not those of a run that was started with as many",
            file=sys.stderr,
        )
    start_jax(config)

    def announce(done: int, changes: list[str]) -> None:
        for change in changes:
            print(f"fedstein: note: {change}: the result may differ in the last bits", file=sys.stderr)
        if not quiet:
            say(f"continuing after round {done} of {config.rounds} in {path}")

    with show_progress(config.rounds, quiet, folder.client_names()) as on_round:
        summary = runner.resume(folder, config, announce, on_round, callbacks=loggers, on_pass=pass_lines(quiet))
    if not quiet:
        print_results(path, summary)


def resume_series(place: Path, rounds: int | None, jobs: int | None, quiet: bool) -> None:
    """Continue every unfinished run of a folder, and write the report of all of them.

    Args:
        place: The folder.
        rounds: A new total of rounds for every run, or None.
        jobs: How many runs are active at once; None for one per core.
        quiet: Whether to print nothing and write no report.

    Raises:
        InputError: If there are no runs, or all are finished.
        FedsteinError: If a run fails or the user stops the command.
    """
    series = read_series(place) or series_of(place)
    if rounds is not None:
        series = extend_all(place, series, rounds)
    check_place(place, series.runs)
    waiting = [run for run in series.runs if not is_finished(place / run.name)]
    if not waiting:
        raise InputError(f"all {len(series.runs)} runs in {place} are finished; see fedstein report {place}")
    workers = min(jobs or cores(), len(waiting))
    if not quiet:
        say(f"{len(waiting)} of {len(series.runs)} runs are not finished, {workers} side by side, in {place}")
    try:
        with show_share(quiet) as on_progress:
            run_jobs(series.runs, place, workers, on_progress)
    except KeyboardInterrupt:
        raise FedsteinError(f"stopped; fedstein resume {place} goes on where it stopped") from None
    if not quiet:
        print_comparison(write_report([place], place / "report"))


def series_of(place: Path) -> Series:
    """The runs below a folder that has no ``series.json``: those that have begun.

    Raises:
        InputError: The folder contains no run.
    """
    runs = []
    for folder in runs_below(place, []):
        if (folder / "config.toml").is_file():
            config = load_config(folder / "config.toml")
            runs.append(SeriesRun.of(folder.relative_to(place).as_posix(), config, config.engine.threads))
    if not runs:
        raise InputError(f"{place} is not a run folder and contains none; expected the folder of an earlier run")
    return Series(tuple(runs))


def extend_all(place: Path, series: Series, rounds: int) -> Series:
    """Give every run of a series another total of rounds."""
    runs: list[SeriesRun] = []
    reasons: set[str] = set()
    for run in series.runs:
        config = Config.model_validate_json(run.text).model_copy(update={"rounds": rounds})
        if (place / run.name / "config.toml").exists():
            _, config = extend(place / run.name, rounds)
            reasons |= {reason for reason in [depends_on_total(config)] if reason}
        runs.append(SeriesRun.of(run.name, config, run.threads))
    for reason in sorted(reasons):
        print(f"fedstein: note: {reason}", file=sys.stderr)
    longer = Series(tuple(runs), series.notes)
    if read_series(place) is not None:
        write_series(place, longer)
    return longer
