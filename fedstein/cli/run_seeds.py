"""The option ``fedstein run --seeds``: several seeds of one config, each in a process and a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from fedstein.cli.progress import show_share
from fedstein.cli.run import read_config, require_local_engine, unused_folder
from fedstein.console import say
from fedstein.errors import FedsteinError, InputError
from fedstein.machine import cores
from fedstein.runs.config import Config, load_config, merge, read_toml
from fedstein.runs.side_by_side import work_off


class Seed(NamedTuple):
    """One of the runs. ``text`` is the config as JSON; its seed is replaced."""

    seed: int
    rounds: int
    text: str
    threads: int  # as the user has set it; 0: the cores are divided among the runs

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return f"seed{self.seed}"

    @property
    def weight(self) -> float:
        """The relative amount of work, for the progress bar."""
        return float(self.rounds)

    def config(self, threads: int) -> dict[str, Any]:
        """Return the config of the run with a number of threads, unless the user has set one."""
        whole = Config.model_validate_json(self.text).to_dict()
        return {**whole, "seed": self.seed, "engine": {**whole["engine"], "threads": self.threads or threads}}


def run_seeds(
    config_file: Path | None,
    settings: list[str],
    first: int | None,
    preset: str | None,
    count: int,
    jobs: int | None,
    out: Path | None,
    quiet: bool,
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
    jobs_of_seeds = [
        Seed(config.seed + i, config.rounds, config.model_dump_json(exclude_none=True), threads) for i in range(count)
    ]
    if place.is_file() or (place / "config.toml").exists():
        raise InputError(f"--out expects a folder for the folders of {count} runs, {place} is a file or a run itself")
    for job in jobs_of_seeds:
        require_same_run(place / job.name, job)
    if not quiet:
        say(f"{count} seeds of {config.model.kind} on {config.data.name}, {workers} side by side, in {place}")
    try:
        with show_share(quiet) as on_progress:
            folders = work_off(jobs_of_seeds, place, workers, on_progress)
    except KeyboardInterrupt:
        raise FedsteinError(f"stopped; the same command with --out {place} goes on where it stopped") from None
    if not quiet:
        from fedstein.report import table, write_report

        result = write_report(list(folders.values()), place / "report")
        Console().print(table(result.rows))
        say(f"results: {place}    report: {result.html}")


def require_same_run(folder: Path, job: Seed) -> None:
    """Check that a folder, if it exists, holds this very run, which is then finished or continued.

    Raises:
        InputError: If the folder holds a run with another config.
    """
    if not (folder / "config.toml").exists():
        return
    there, wanted = load_config(folder / "config.toml").to_dict(), job.config(1)
    for found in (there, wanted):
        found["engine"].pop("threads")
    if there != wanted:
        raise InputError(f"{folder} holds a run with another config; choose another folder with --out")
