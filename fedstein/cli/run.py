"""The commands ``fedstein run`` and ``fedstein resume``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedstein.cli.progress import pass_lines, show_progress
from fedstein.console import counted, say
from fedstein.data import Dataset
from fedstein.errors import InputError
from fedstein.loggers import make_loggers
from fedstein.runs import runner
from fedstein.runs.config import Config, read_layers
from fedstein.runs.federate import prepare_run
from fedstein.runs.folder import refuse_used
from fedstein.runs.jax_setup import start_jax
from fedstein.runs.reading import resolve_layers

SHOWN = 6  # labels or features in the headline of a run


def read_config(
    config_file: Path | None, settings: list[str], seed: int | None, preset: str | None = None
) -> tuple[Config, Dataset]:
    """Read the settings of a command and load its data.

    Args:
        config_file: A TOML file; None for none.
        settings: The values of ``--set``.
        seed: The value of ``--seed``.
        preset: The value of ``--preset``.

    Returns:
        The full config and its data. Keys of the file that the command line has overridden are named on stderr.

    Raises:
        InputError: The settings, or the data, are wrong.
    """
    read = resolve_layers(read_layers(config_file, settings, seed, preset))
    for note in read.notes:
        print(f"fedstein: note: {note}", file=sys.stderr)
    return read.config, read.dataset


def new_run(
    config_file: Path | None,
    settings: list[str],
    seed: int | None,
    preset: str | None,
    out: Path | None,
    quiet: bool,
    log: Sequence[str] = (),
) -> None:
    """Start a run, show its progress, and print its results.

    Args:
        config_file: The TOML file, or None.
        settings: The values of ``--set``.
        seed: The seed of the run, or None.
        preset: The name of a preset, or None.
        out: The run folder, or None to choose one.
        quiet: Whether to print no progress.
        log: The loggers to write to.

    Raises:
        InputError: If the config, the data or the folder cannot be used, or a logger is not installed.
    """
    config, dataset = read_config(config_file, settings, seed, preset)
    require_local_engine(config)
    folder = out or unused_folder(config)
    refuse_used(folder)
    loggers = make_loggers(log, folder)
    start_jax(config)
    run = prepare_run(config, dataset)
    if not quiet:
        say(headline(config))
    names = [client.name for client in run.engine.clients]
    with show_progress(config.rounds, quiet, names) as on_round:
        summary = runner.start(run, folder, on_round, callbacks=loggers, on_pass=pass_lines(quiet))
    if not quiet:
        print_results(folder, summary)


def require_local_engine(config: Config) -> None:
    """Check that a config runs in this process.

    Raises:
        InputError: If the config needs nodes.
    """
    if config.engine.kind != "local":
        raise InputError(
            f"engine.kind = {config.engine.kind!r} needs nodes: use fedstein deploy demo to try it on this machine, or "
            "fedstein deploy app for nodes elsewhere; fedstein run is for engine.kind = 'local'"
        )


def unused_folder(config: Config, name: str = "") -> Path:
    """Choose a run folder that does not exist yet.

    Args:
        config: The config of the run.
        name: The name of the folder; by default ``<data>-<scheme>-seed<S>``.

    Returns:
        ``runs/<name>``, with a number appended if that exists.
    """
    base = Path("runs") / (name or f"{config.data.name}-{config.selection.kind}-seed{config.seed}")
    number, path = 1, base
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def headline(config: Config) -> str:
    """Describe a run in two lines; for files of the user's own, a third line says what is predicted from what."""
    density, structure = getattr(config.sites, "density", ""), getattr(config.sites, "structure", "")
    detail = f" ({density} density)" if density else f" ({structure})" if structure else ""
    return (
        f"{config.model.kind} on {config.data.name}: {counted(config.partition.clients, 'client')} "
        f"({config.partition.kind}), {counted(config.rounds, 'round')}, seed {config.seed}\n"
        f"{config.algorithm.kind} with {counted(config.algorithm.particles, 'particle')}, {config.sites.kind} as sites"
        f"{detail}, "
        f"selection by {config.selection.kind}{target_line(config)}"
    )


def target_line(config: Config) -> str:
    """A line on the target and the features of files, so that a wrong guess is seen; empty for other data."""
    if config.data.name != "file" or config.data.target is None:
        return ""
    labels, features = config.data.labels or (), config.data.features or ()
    kind = f"{len(labels)} labels ({list_names(labels)})" if labels else "numbers"
    return f"\ntarget {config.data.target}: {kind}; features: {list_names(features)}"


def list_names(names: Sequence[str | int]) -> str:
    """Up to ``SHOWN`` names, then the number of the others."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(str, names[:SHOWN])) + more


def print_results(folder: Path, summary: dict[str, Any]) -> None:
    """Print the results of a run and the place of its files.

    Args:
        folder: The run folder.
        summary: The content of ``summary.json``.
    """
    grid = Table(box=None, header_style="bold", pad_edge=False)
    grid.add_column("metric")
    for column in ("last round", "last quarter, mean", "sd"):
        grid.add_column(column, justify="right")
    for metric, value in summary["final"].items():
        if value is not None:
            tail = summary["tail"][metric]
            grid.add_row(metric, *(number(v) for v in (value, tail["mean"], tail["sd"])))
    console = Console()
    with console.capture() as table:
        console.print(grid)
    say(table.get().rstrip("\n"))
    if settled := summary.get("settled"):
        scores = ", ".join(
            f"{name} {number(settled[name])}" for name in ("accuracy", "rmse", "nll") if settled.get(name)
        )
        scored = f", {scores}" if scores else ""
        say(f"the posterior: the particles converged on prior and sites after the last round{scored}")
    rounds = summary["rounds"]
    say(
        f"{counted(rounds, 'round')} in {summary['seconds']:.1f} s; per round "
        f"{size(summary['bytes_down'] / rounds)} down, {size(summary['bytes_up'] / rounds)} up; "
        f"every client selected at least once: {'yes' if min(summary['selected_counts']) else 'no'}"
    )
    if "evaluation" in summary:
        say("every client evaluated the posterior on its held-out rows: see clients-evaluation.json and the report")
    say(f"results: {folder}    figures: fedstein report {folder}")


def number(value: float | None) -> str:
    """Format a score with four decimals."""
    return "-" if value is None else f"{value:.4f}"


def size(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
