"""A series: several runs in one folder that belong together. ``run --seeds`` and ``compare`` make one each.

``series.json`` names every run of the series with its config, also those that have not begun. So the folder can be
continued by ``fedstein resume`` without the command that made it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedstein.errors import InputError
from fedstein.files import disk_errors, read_json, write_json
from fedstein.runs.config import Config, load_config, whole_config

FILE, FORMAT = "series.json", 1


class SeriesRun(NamedTuple):
    """One run of a series."""

    name: str  # the name of its folder
    rounds: int
    text: str  # its config as JSON
    threads: int  # 0: as many as the cores divided by the runs side by side

    @classmethod
    def of(cls, name: str, config: Config, threads: int) -> SeriesRun:
        """The run of a config."""
        return cls(name, config.rounds, config.model_dump_json(exclude_none=True), threads)

    @property
    def weight(self) -> float:
        """The relative amount of work, for the progress bar."""
        return float(self.rounds)

    def config(self, threads: int) -> dict[str, Any]:
        """Return the config of the run, with that many threads unless the series says how many."""
        whole = Config.model_validate_json(self.text).to_dict()
        return {**whole, "engine": {**whole["engine"], "threads": self.threads or threads}}


class Series(NamedTuple):
    """The runs of a folder, and what is to be said about them in their report."""

    runs: tuple[SeriesRun, ...]
    notes: tuple[str, ...] = ()


def write_series(place: Path, series: Series) -> None:
    """Write ``series.json`` before the first run begins.

    Args:
        place: The folder of the series.
        series: Its runs.

    Raises:
        InputError: The folder cannot be written to.
    """
    runs = [{"name": run.name, "threads": run.threads, "config": json.loads(run.text)} for run in series.runs]
    with disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / FILE, {"format": FORMAT, "notes": list(series.notes), "runs": runs})


def read_series(place: Path) -> Series | None:
    """Read the series of a folder.

    Args:
        place: The folder.

    Returns:
        The series, or None if the folder has no ``series.json``.

    Raises:
        InputError: The file is damaged or has another format.
    """
    path = place / FILE
    if not path.is_file():
        return None
    document = read_json(path, "a series of runs")
    try:
        if document["format"] != FORMAT:
            raise InputError(f"{path} has format {document['format']}, this version of fedstein reads {FORMAT}")
        notes = tuple(str(note) for note in document["notes"])
        runs = []
        for entry in document["runs"]:
            name = str(entry["name"])
            if Path(name).name != name:
                raise InputError(f"{path} is damaged: expected the name of a folder, got {name!r}")
            runs.append(SeriesRun.of(name, whole_config(entry["config"], str(path)), int(entry["threads"])))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {error!r}; give the command that made the folder again") from None
    return Series(tuple(runs), notes)


def keep_threads(place: Path, runs: Sequence[SeriesRun], threads: int) -> list[SeriesRun]:
    """Fix the number of threads of every run: what the user set, else what the series had before, else ``threads``.

    Runs of one comparison must not differ in it, also if the command that continues has another ``--jobs``.
    """
    try:
        before = {run.threads for run in (read_series(place) or Series(())).runs}
    except InputError:  # it is written anew
        before = set()
    usual = before.pop() if len(before) == 1 else threads
    return [run._replace(threads=run.threads or usual) for run in runs]


def check_place(place: Path, runs: Sequence[SeriesRun]) -> None:
    """Check that a folder can hold a series: what it holds of these runs is finished or continued.

    Args:
        place: The folder.
        runs: The runs.

    Raises:
        InputError: It is a file, a run, or holds a run of the same name with another config.
    """
    if place.is_file() or (place / "config.toml").exists():
        raise InputError(
            f"--out expects a folder for the folders of {len(runs)} runs, {place} is a file or a run itself"
        )
    for run in runs:
        require_same_run(place / run.name, run)


def require_same_run(folder: Path, run: SeriesRun) -> None:
    """Check that a folder, if it exists, holds this very run, which is then finished or continued.

    Raises:
        InputError: If the folder holds a run with another config.
    """
    if not (folder / "config.toml").exists():
        return
    there, wanted = load_config(folder / "config.toml").to_dict(), run.config(1)
    for found in (there, wanted):
        found["engine"].pop("threads")
    if there != wanted:
        raise InputError(f"{folder} holds a run with another config; choose another folder with --out")
