"""Finding runs: a folder that is given may be a run, or contain runs at any depth."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedstein.errors import InputError
from fedstein.runs.series import read_series


class FoundRuns(NamedTuple):
    """The run folders in the order of the report, and what is to be said about them."""

    runs: list[Path]
    notes: tuple[str, ...]


def find_runs(folders: Sequence[Path]) -> FoundRuns:
    """Find the runs of folders.

    Args:
        folders: Run folders, or folders with runs below them.

    Returns:
        A folder that is a run, as it is; of the others every run below them that has finished a round. The runs of a
        series come in its order, and with its notes.

    Raises:
        InputError: A series is damaged, or a folder contains runs of which none has finished a round.
    """
    found: dict[Path, Path] = {}
    notes: list[str] = []
    for folder in folders:
        if is_run(folder) or not folder.is_dir():
            found.setdefault(folder.resolve(), folder)
            continue
        inside = list(runs_below(folder, notes))
        begun = [run for run in inside if has_rounds(run)]
        if inside and not begun:
            raise InputError(f"expected at least one finished round below {folder}, got none; let the runs get further")
        waiting = [run.relative_to(folder).as_posix() for run in inside if run not in begun]
        if waiting:
            notes.append(f"Without a finished round, so left out: {', '.join(waiting)}.")
        for run in begun or [folder]:  # without any run below it, reading the folder itself gives the message
            found.setdefault(run.resolve(), run)
    return FoundRuns(list(found.values()), tuple(dict.fromkeys(notes)))


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return (folder / "config.toml").is_file() or (folder / "rounds.jsonl").is_file()


def has_rounds(folder: Path) -> bool:
    """Whether a run has finished a round."""
    file = folder / "rounds.jsonl"
    return file.is_file() and b"\n" in file.read_bytes()


def runs_below(folder: Path, notes: list[str]) -> Iterator[Path]:
    """The runs below a folder, those of a series in its order, else by name. Its notes are appended to ``notes``."""
    series = read_series(folder)
    listed = []
    if series is not None:
        notes += series.notes
        names = dict.fromkeys(name_of_group(run.name) for run in series.runs)  # the first variant first
        ordered = sorted(series.runs, key=lambda run: list(names).index(name_of_group(run.name)))
        listed = [folder / run.name for run in ordered if is_run(folder / run.name)]
        yield from listed
    for child in sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir()):
        if is_run(child):
            if child not in listed:
                yield child
        else:
            yield from runs_below(child, notes)


def name_of_group(name: str) -> str:
    """The name of a run in a series without its seed: ``hip-seed3`` -> ``hip``."""
    return name.rpartition("seed")[0]
