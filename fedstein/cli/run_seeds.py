"""The option ``fedstein run --seeds``: several seeds of one config, each in a process and a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedstein.cli.progress import show_share
from fedstein.cli.run import read_config, require_local_engine, unused_folder
from fedstein.console import counted, say
from fedstein.errors import FedsteinError
from fedstein.loggers import make_loggers
from fedstein.machine import cores
from fedstein.runs.config import merge, read_toml
from fedstein.runs.parallel_jobs import Command, run_jobs, run_or_resume
from fedstein.runs.series import Series, SeriesRun, check_place, keep_threads, write_series


def run_seeds(
    config_file: Path | None,
    settings: list[str],
    first: int | None,
    preset: str | None,
    count: int,
    jobs: int | None,
    out: Path | None,
    quiet: bool,
    log: Sequence[str] = (),
) -> None:
    """Run consecutive seeds of one config in parallel processes, and write a report.

    Args:
        config_file: The TOML file, or None.
        settings: The values of ``--set``.
        first: The first seed, or None for that of the config.
        preset: The name of a preset, or None.
        count: The number of seeds.
        jobs: The number of runs at once, or None for one per core.
        out: The folder for the run folders, or None to choose one.
        quiet: Whether to print nothing and write no report.
        log: The loggers to write to.

    Raises:
        InputError: If the config or the folder cannot be used.
        FedsteinError: If a run fails or the user stops the command.
    """
    config, _ = read_config(config_file, settings, first, preset)
    require_local_engine(config)
    own = merge(read_toml(config_file) if config_file else {}, settings).get("engine", {})
    threads = config.engine.threads if own.get("threads") else 0
    place = out or unused_folder(config, f"{config.data.name}-{config.selection.kind}-seeds")
    workers = min(jobs or cores(), count)
    runs = [
        SeriesRun.of(f"seed{seed}", config.model_copy(update={"seed": seed}), threads)
        for seed in range(config.seed, config.seed + count)
    ]
    check_place(place, runs)
    make_loggers(log, place)  # refuses a wrong name before any run starts
    runs = keep_threads(place, runs, max(1, cores() // workers))
    write_series(place, Series(tuple(runs)))
    if not quiet:
        say(
            f"{counted(count, 'seed')} of {config.model.kind} on {config.data.name}, {workers} side by side, in {place}"
        )
    try:
        with show_share(quiet) as on_progress:
            folders = run_jobs(runs, place, workers, on_progress, logging_command(log))
    except KeyboardInterrupt:
        raise FedsteinError(f"stopped; fedstein resume {place} goes on where it stopped") from None
    if not quiet:
        from fedstein.report import table, write_report

        result = write_report(list(folders.values()), place / "report")
        Console().print(table(result.rows))
        say(f"results: {place}    report: {result.html}")


def logging_command(log: Sequence[str]) -> Command:
    """The command that runs or resumes a job, with the loggers that it writes to."""
    return lambda job, folder, threads: [
        *run_or_resume(job, folder, threads),
        *(word for name in log for word in ("--log", name)),
    ]
