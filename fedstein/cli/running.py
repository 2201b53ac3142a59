"""``fedstein run`` and ``fedstein resume``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedstein.cli import say
from fedstein.cli.progress import show_progress
from fedstein.data import Dataset
from fedstein.errors import InputError
from fedstein.runs import runner
from fedstein.runs.config import Config, check_names, check_section, merge, read_toml, resolve, with_preset
from fedstein.runs.folder import refuse_used
from fedstein.runs.wiring import facts_of, load_dataset, wire
from fedstein.start import start_jax


def read_config(
    config_file: Path | None, settings: list[str], seed: int | None, preset: str | None = None
) -> tuple[Config, Dataset]:
    """The full config and its data; keys that do not apply are named on stderr."""
    raw = with_preset(preset, merge(read_toml(config_file) if config_file else {}, settings))
    if seed is not None:
        raw["seed"] = seed
    check_names(raw)
    check_section("data", {"name": "covertype", **raw.get("data", {})})
    raw = with_whole_paths(raw)
    dataset = load_dataset(raw)
    if dataset.target_name:  # a file: what was found out about it is spelt out
        raw = {**raw, "data": {**raw["data"], "target": dataset.target_name, "task": dataset.task}}
    config, notes = resolve(raw, facts_of(dataset))
    for note in notes:
        print(f"fedstein: note: {note}", file=sys.stderr)
    return config, dataset


def new_run(
    config_file: Path | None,
    settings: list[str],
    seed: int | None,
    preset: str | None,
    out: Path | None,
    quiet: bool,
) -> None:
    config, dataset = read_config(config_file, settings, seed, preset)
    refuse_nodes(config)
    folder = out or free_folder(config)
    refuse_used(folder)
    start_jax(config)
    wired = wire(config, dataset)
    if not quiet:
        say(headline(config))
    with show_progress(config.rounds, quiet) as on_round:
        summary = runner.start(wired, folder, on_round)
    if not quiet:
        conclude(folder, summary)


def refuse_nodes(config: Config) -> None:
    """``fedstein run`` has every row here."""
    if config.engine.kind != "local":
        raise InputError(
            f"engine.kind = {config.engine.kind!r} needs nodes: use fedstein deploy demo to try it on this machine, or "
            "fedstein deploy app for nodes elsewhere; fedstein run is for engine.kind = 'local'"
        )


def resume_run(path: Path, quiet: bool) -> None:
    folder, config = runner.open_run(path)
    start_jax(config)

    def announce(done: int, changes: list[str]) -> None:
        for change in changes:
            print(f"fedstein: note: {change}: the result may differ in its bits", file=sys.stderr)
        if not quiet:
            say(f"continuing after round {done} of {config.rounds} in {path}")

    with show_progress(config.rounds, quiet) as on_round:
        summary = runner.resume(folder, config, announce, on_round)
    if not quiet:
        conclude(path, summary)


def with_whole_paths(raw: dict[str, Any]) -> dict[str, Any]:
    """Paths in ``[data]`` made absolute: a run must find its rows again from wherever it is resumed."""
    data = raw.get("data", {})
    whole = {key: str(Path(data[key]).expanduser().absolute()) for key in ("path", "test_path") if data.get(key)}
    return {**raw, "data": {**data, **whole}} if whole else raw


def free_folder(config: Config, name: str = "") -> Path:
    """``runs/<data>-<scheme>-seed<S>``, or another name, numbered where that exists already."""
    base = Path("runs") / (name or f"{config.data.name}-{config.selection.kind}-seed{config.seed}")
    number, path = 1, base
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def headline(config: Config) -> str:
    of_sites = {"particles": f"{config.sites.density} density", "curvature": config.sites.structure}
    detail = f" ({of_sites[config.sites.kind]})" if config.sites.kind in of_sites else ""
    return (
        f"{config.model.kind} on {config.data.name}: {config.partition.clients} clients ({config.partition.kind}), "
        f"{config.rounds} rounds, seed {config.seed}\n"
        f"{config.algorithm.kind} with {config.algorithm.particles} particles, {config.sites.kind} as sites{detail}, "
        f"selection by {config.selection.kind}"
    )


def conclude(folder: Path, summary: dict[str, Any]) -> None:
    """The small table at the end, and where everything is."""
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
        scores = ", ".join(f"{name} {number(settled[name])}" for name in ("accuracy", "rmse", "nll") if settled[name])
        say(f"the posterior: particles settled on prior and sites after the last round, {scores}")
    rounds = summary["rounds"]
    say(
        f"{rounds} rounds in {summary['seconds']:.1f} s; per round {size(summary['bytes_down'] / rounds)} down, "
        f"{size(summary['bytes_up'] / rounds)} up; every client selected at least once: "
        f"{'yes' if min(summary['selected_counts']) else 'no'}"
    )
    if "evaluation" in summary:
        say("every client evaluated on rows that it held out: clients-evaluation.json, also in the report")
    say(f"results: {folder}    figures: fedstein report {folder}")


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
