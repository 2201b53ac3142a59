"""The command ``fedstein tune``."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedstein.cli.run import number, read_config
from fedstein.console import counted, say
from fedstein.errors import FedsteinError, InputError
from fedstein.runs.jax_setup import start_jax
from fedstein.studies.tuning import FACTORS, Trial, best, hold_out, table, tune


def tune_steps(
    config_file: Path | None,
    settings: list[str],
    preset: str | None,
    grid: str | None,
    seeds: int,
    fraction: float,
    out: Path,
    quiet: bool,
) -> None:
    """Try every step size of a grid, and print the best one as an option for ``fedstein run``.

    Args:
        config_file: The TOML file, or None.
        settings: The values of ``--set``.
        preset: The name of a preset, or None.
        grid: Step sizes separated by commas, or None for the default grid.
        seeds: The number of seeds of every step size.
        fraction: The share of the training rows to hold out.
        out: The JSON file for the trials.
        quiet: Whether to print only the result.

    Raises:
        InputError: If an option is invalid.
        FedsteinError: If every step size diverges or the user stops the command.
    """
    config, dataset = read_config(config_file, settings, None, preset)
    steps = read_grid(grid) if grid else [factor * config.algorithm.step_size for factor in FACTORS]
    if not 0 < fraction < 1:
        raise InputError(f"--fraction expects a number between 0 and 1, got {fraction}")
    start_jax(config)
    by_clients = config.evaluate.where == "clients"
    held = dataset if by_clients else hold_out(dataset, fraction)
    if by_clients:
        scored = f"{fraction:g} of every client's training rows; the rows it evaluates on are not used"
    else:
        scored = f"{len(held.test_x)} held-out training rows; the test rows are not used"
    if not quiet:
        say(
            f"{config.algorithm.kind}, {config.sites.kind} sites, on {config.data.name}: "
            f"{counted(len(steps), 'step size')} x {counted(seeds, 'seed')}, scored on {scored}"
        )
    trials: list[Trial] = []
    try:
        for trial in tune(config, held, steps, seeds, out, fraction if by_clients else None):
            trials.append(trial)
            score = trial.accuracy if trial.accuracy is not None else trial.rmse
            if not quiet:
                where = f"{len(trials)}/{len(steps) * seeds}  step size {trial.step_size:g}, seed {trial.seed}"
                say(f"{where}: {'diverged' if score is None else number(score)}")
    except KeyboardInterrupt:
        raise FedsteinError(f"stopped; the same command goes on where it stopped, with {out}") from None
    chosen = best(trials, steps)
    lead = "accuracy" if dataset.task == "classification" else "rmse"
    grid_table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("step size", "seeds", lead, "nll", ""):
        grid_table.add_column(column, justify="right")
    for row in table(trials, steps):
        mark = "best" if row["step_size"] == chosen else ""
        grid_table.add_row(f"{row['step_size']:g}", str(row["seeds"]), number(row[lead]), number(row["nll"]), mark)
    if not quiet:
        Console().print(grid_table)
    if chosen is None:
        raise FedsteinError("every step size diverged; try smaller ones with --grid")
    if chosen in (min(steps), max(steps)):
        print("fedstein: note: the best step size is at the edge of the grid; widen it with --grid", file=sys.stderr)
    print(f"--set algorithm.step_size={chosen:g}")


def read_grid(text: str) -> list[float]:
    """Parse the value of ``--grid``.

    Raises:
        InputError: If it is not a list of positive numbers.
    """
    try:
        steps = [float(word) for word in text.split(",")]
    except ValueError:
        steps = []
    if not steps or not all(0 < step < float("inf") for step in steps):
        raise InputError(f"--grid expects positive numbers with commas between them, got {text!r}")
    return sorted(set(steps))
