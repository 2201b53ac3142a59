"""Tunes every method on every task with the same number of trials, and runs what is not finished yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fedstein.errors import InputError
from fedstein.machine import cores
from fedstein.report.load import Run, load_run
from fedstein.runs.config import Config
from fedstein.runs.jax_setup import start_jax
from fedstein.runs.reading import resolve_layers
from fedstein.runs.series import Series, SeriesRun, check_place, keep_threads, write_series
from fedstein.runs.side_by_side import work_off
from fedstein.studies.leaderboard.plan import Board
from fedstein.studies.tuning import best, hold_out, tune

OnProgress = Callable[[float, str], None]


class Entry(NamedTuple):
    """One method on one task.

    Attributes:
        task: The name of the task.
        method: The name of the method.
        step_size: The step size that was chosen; None where there are no runs.
        factor: The step size divided by the default one.
        refused: Why there are no runs, in a sentence; empty where there are.
        runs: The finished runs, one for each seed.
    """

    task: str
    method: str
    step_size: float | None
    factor: float | None
    refused: str
    runs: tuple[Run, ...] = ()


def play_board(board: Board, place: Path, workers: int, on_progress: OnProgress) -> list[Entry]:
    """Tune and run everything that is not finished yet. The same call again goes on where it stopped.

    Args:
        board: The plan.
        place: The folder: trials in ``tuning``, a folder for each run.
        workers: Runs at once; tuning runs one after another in this process.
        on_progress: Gets the share of the current part that is done, and what is under way.

    Returns:
        The entries, task by task. A combination that is refused, or whose step sizes all diverge, has no runs.

    Raises:
        InputError: The folder holds something else.
        FedsteinError: A run failed.
    """
    found: list[tuple[Entry, Config | None]] = []
    pairs = [(task, method) for task in board.tasks for method in board.methods]
    for number, (task, method) in enumerate(pairs):
        on_progress(number / len(pairs), f"tuning {method} on {task}")
        found.append(_tuned(board, place, task, method))
    runs = [
        SeriesRun.of(f"{entry.task}-{entry.method}-seed{config.seed + i}", seeded(config, i), 1)
        for i in range(board.seeds)
        for entry, config in found
        if config is not None
    ]
    check_place(place, runs)
    series = Series(tuple(keep_threads(place, runs, max(1, cores() // workers))), (note_of(board),))
    write_series(place, series)
    folders = {run.name: folder for run, folder in work_off(series.runs, place, workers, on_progress).items()}

    def runs_of(entry: Entry, config: Config | None) -> tuple[Run, ...]:
        if config is None:
            return ()
        names = [f"{entry.task}-{entry.method}-seed{config.seed + i}" for i in range(board.seeds)]
        return tuple(load_run(folders[name]) for name in names)

    return [entry._replace(runs=runs_of(entry, config)) for entry, config in found]


def seeded(config: Config, index: int) -> Config:
    """The config with the seed of the run with that index."""
    return config.model_copy(update={"seed": config.seed + index})


def note_of(board: Board) -> str:
    """How step sizes were chosen."""
    if board.trials == 1:
        return "Every method has its default step size; nothing was tuned."
    return (
        f"Step sizes: the best of {board.trials} (the default times {', '.join(f'{f:g}' for f in board.factors)}) on "
        f"{board.fraction:.0%} of the training rows, one seed each. Test rows were not used."
    )


def _tuned(board: Board, place: Path, task: str, method: str) -> tuple[Entry, Config | None]:
    layers: list[tuple[str, dict[str, Any]]] = [
        ("the task", board.tasks[task]),
        ("the method", board.methods[method]),
    ]
    try:
        read = resolve_layers(layers)
    except InputError as error:
        return Entry(task, method, None, None, str(error)), None
    config, dataset = read.config, read.dataset
    usual = config.algorithm.step_size
    if board.trials == 1:
        return Entry(task, method, usual, 1.0, ""), config
    config = config.model_copy(update={"engine": config.engine.model_copy(update={"threads": 1})})
    start_jax(config)
    grid = [factor * usual for factor in board.factors]
    held = hold_out(dataset, board.fraction)
    try:
        trials = list(tune(config, held, grid, 1, place / "tuning" / f"{task}-{method}.json"))
    except InputError as error:
        if "belongs to another tuning" in str(error) or "damaged" in str(error):
            raise
        return Entry(task, method, None, None, str(error)), None
    chosen = best(trials, grid)
    if chosen is None:
        return Entry(task, method, None, None, "Every step size diverged."), None
    steps = config.algorithm.model_copy(update={"step_size": chosen})
    return Entry(task, method, chosen, chosen / usual, ""), config.model_copy(update={"algorithm": steps})
