"""The command ``fedstein compare``."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from fedstein.cli.progress import show_share
from fedstein.cli.run import require_local_engine
from fedstein.console import counted, say
from fedstein.errors import FedsteinError, InputError
from fedstein.machine import cores
from fedstein.report import ReportResult, table
from fedstein.runs.config import read_layers
from fedstein.studies.compare import parse_over, plan_comparison, run_comparison


def compare_settings(
    over: list[str],
    config_file: Path | None,
    settings: list[str],
    seed: int | None,
    preset: str | None,
    seeds: int,
    fair: bool,
    jobs: int | None,
    out: Path | None,
    quiet: bool,
) -> None:
    """Run every combination of the compared values over the same seeds, and print and write the comparison.

    Args:
        over: The values of ``--over``.
        config_file: The TOML file, or None.
        settings: The values of ``--set``.
        seed: The first seed, or None for that of the config.
        preset: The name of a preset, or None.
        seeds: The number of seeds of each variant.
        fair: Whether all other settings are held equal.
        jobs: The number of runs at once, or None for one per core.
        out: The folder, or None for one whose name follows from the comparison.
        quiet: Whether to print no progress and no table.

    Raises:
        InputError: If a setting or the folder cannot be used.
        FedsteinError: If a run fails or the user stops the command.
    """
    if not over:
        raise InputError("compare needs at least one --over, such as --over selection.kind=round_robin,ksd,hip")
    comparison = plan_comparison(
        read_layers(config_file, settings, seed, preset), [parse_over(text) for text in over], fair
    )
    for variant in comparison.variants:
        require_local_engine(variant.config)
    place, count = out or comparison.place(), len(comparison.variants) * seeds
    workers = min(jobs or cores(), count)
    if not quiet:
        say(
            f"{counted(len(comparison.variants), 'variant')} x {counted(seeds, 'seed')}, {workers} side by side, in "
            f"{place}"
        )
        say(comparison.notes()[0])
    try:
        with show_share(quiet) as on_progress:
            result = run_comparison(comparison, seeds, workers, place, on_progress)
    except KeyboardInterrupt:
        raise FedsteinError(f"stopped; fedstein resume {place} goes on where it stopped") from None
    if not quiet:
        print_comparison(result)


def print_comparison(result: ReportResult) -> None:
    """Print the notes, the table and the place of a report."""
    console = Console()
    for note in result.notes:
        console.print(note, highlight=False, markup=False)
    console.print(table(result.rows))
    say(f"results: {result.html.parent.parent}    report: {result.html}")
