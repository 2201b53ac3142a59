"""``fedstein run --seeds``: several seeds of one config side by side, each in a process and a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from fedstein.cli import say
from fedstein.cli.progress import show_share
from fedstein.cli.running import free_folder, read_config, refuse_nodes
from fedstein.errors import FedsteinError, InputError
from fedstein.machine import cores
from fedstein.runs.config import Config, load_config, merge, read_toml
from fedstein.runs.side_by_side import work_off


class Seed(NamedTuple):
    """One run of them; ``text`` has the config but for the seed."""

    seed: int
    rounds: int
    text: str
    threads: int  # as the user has set them; 0: the cores are shared out

    @property
    def name(self) -> str:
        return f"seed{self.seed}"

    @property
    def weight(self) -> float:
        return float(self.rounds)

    def config(self, threads: int) -> dict[str, Any]:
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
    config, _ = read_config(config_file, settings, first, preset)
    refuse_nodes(config)
    own = merge(read_toml(config_file) if config_file else {}, settings).get("engine", {})
    threads = config.engine.threads if own.get("threads") else 0
    place = out or free_folder(config, f"{config.data.name}-{config.selection.kind}-seeds")
    workers = min(jobs or cores(), count)
    piled = [
        Seed(config.seed + i, config.rounds, config.model_dump_json(exclude_none=True), threads) for i in range(count)
    ]
    if place.is_file() or (place / "config.toml").exists():
        raise InputError(f"--out expects a folder for the folders of {count} runs, {place} is a file or a run itself")
    for job in piled:
        refuse_other(place / job.name, job)
    if not quiet:
        say(f"{count} seeds of {config.model.kind} on {config.data.name}, {workers} side by side, in {place}")
    try:
        with show_share(quiet) as on_progress:
            folders = work_off(piled, place, workers, on_progress)
    except KeyboardInterrupt:
        raise FedsteinError(f"stopped; the same command with --out {place} goes on where it stopped") from None
    if not quiet:
        from fedstein.report import table, write_report

        result = write_report(list(folders.values()), place / "report")
        Console().print(table(result.rows))
        say(f"results: {place}    report: {result.html}")


def refuse_other(folder: Path, job: Seed) -> None:
    """A folder that is there already must hold this very run: it then goes on, or is done."""
    if not (folder / "config.toml").exists():
        return
    there, wanted = load_config(folder / "config.toml").to_dict(), job.config(1)
    for found in (there, wanted):
        found["engine"].pop("threads")
    if there != wanted:
        raise InputError(f"{folder} holds a run with another config; choose another folder with --out")
