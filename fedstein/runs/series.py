"""A series: several runs in one folder that belong together. ``run --seeds`` and ``compare`` make one each.

``series.json`` has the name and the config of every run of the series, even if it has not begun. So ``fedstein resume``
can continue the folder without the command that made it.
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
    threads: int  # 0: the number of cores divided by the number of runs at once

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
    """The runs of a folder, and notes about them for their report."""

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
    """Fix the number of threads of every run: the user's setting, else that of the existing series, else ``threads``.

    All runs of a comparison must have the same number of threads, even if the command that continues has another
    ``--jobs``.
    """
    try:
        before = {run.threads for run in (read_series(place) or Series(())).runs}
    except InputError:  # a damaged file is written again
        before = set()
    usual = before.pop() if len(before) == 1 else threads
    return [run._replace(threads=run.threads or usual) for run in runs]


def check_place(place: Path, runs: Sequence[SeriesRun]) -> None:
    """Check that a folder can hold a series. Runs of the series that it already has are finished or continued.

    Args:
        place: The folder.
        runs: The runs.

    Raises:
        InputError: It is a file or a run folder, or it has a run of the same name with another config.
    """
    if place.is_file() or (place / "config.toml").exists():
        raise InputError(
            f"--out expects a folder for the folders of {len(runs)} runs, {place} is a file or a run itself"
        )
    for run in runs:
        require_same_run(place / run.name, run)


def require_same_run(folder: Path, run: SeriesRun) -> None:
    """Check that a folder, if it exists, has a run with the same config, which can be continued.

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
