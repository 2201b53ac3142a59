"""Tuning every method on every task with the same number of trials, and running what is not finished yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple

from fedstein.errors import InputError
from fedstein.machine import cores
from fedstein.report.load import Run, load_run
from fedstein.runs.config import Config
from fedstein.runs.jax_setup import start_jax
from fedstein.runs.parallel_jobs import run_jobs
from fedstein.runs.reading import resolve_layers
from fedstein.runs.sequential_jobs import run_jobs_here
from fedstein.runs.series import Series, SeriesRun, check_place, keep_threads, write_series
from fedstein.studies.leaderboard.foreign import foreign_scores
from fedstein.studies.leaderboard.plan import Board
from fedstein.studies.leaderboard.quoted import Scores, quoted_scores
from fedstein.studies.tuning import best, hold_out, tune

OnProgress = Callable[[float, str], None]


class Entry(NamedTuple):
    """One method on one task.

    Attributes:
        task: The name of the task.
        method: The name of the method.
        step_size: The step size that was chosen; None if there are no runs.
        factor: The step size divided by the default one.
        refused: Why there are no runs, in a sentence; empty if there are.
        runs: The finished runs, one for each seed; if clients train alone, one for each seed and client.
        areas: For each run, how well its uncertainty tells foreign rows from test rows; empty if the task has none.
        quoted: For each run, the scores of the draws that it predicts with; empty if those are the particles.
    """

    task: str
    method: str
    step_size: float | None
    factor: float | None
    refused: str
    runs: tuple[Run, ...] = ()
    areas: tuple[float, ...] = ()
    quoted: tuple[Scores, ...] = ()


def play_board(board: Board, place: Path, workers: int, on_progress: OnProgress) -> list[Entry]:
    """Tune and run everything that is not finished yet. The same call again goes on where it stopped.

    Args:
        board: The plan.
        place: The folder: trials in ``tuning``, a folder for each run.
        workers: Runs at once, each a process of its own; 0: one after another in this process. Tuning is always that.
        on_progress: Gets the share of the current part that is done, and what is under way.

    Returns:
        The entries, task by task. A combination that is refused, whose step sizes all diverge, or of which a run
        failed, has no runs and says why.

    Raises:
        InputError: The folder holds something else.
    """
    found: list[tuple[Entry, Config | None]] = []
    pairs = [(task, method) for task in in_order(board) for method in board.methods if board.has(task, method)]
    for number, (task, method) in enumerate(pairs):
        on_progress(number / len(pairs), f"tuning {method} on {task}")
        factors = [entry.factor for entry, _ in found if entry.method == method and entry.factor is not None]
        found.append(_tuned(board, place, task, method, factors))
    jobs = {entry: _jobs(board, entry, config) for entry, config in found if config is not None}
    runs = sorted((run for mine in jobs.values() for run in mine), key=lambda run: int(run.name.rsplit("seed", 1)[1]))
    check_place(place, runs)
    series = Series(tuple(keep_threads(place, runs, max(1, cores() // (workers or 1)))), (note_of(board),))
    write_series(place, series)
    failures: dict[str, str] = {}

    def failed(job: SeriesRun, why: str) -> None:
        failures[job.name] = why

    if workers:
        folders = run_jobs(series.runs, place, workers, on_progress, on_failure=failed)
    else:
        folders = run_jobs_here(series.runs, place, on_progress, failed)
    by_name = {run.name: folder for run, folder in folders.items()}

    def ended(entry: Entry) -> Entry:
        mine = [run.name for run in jobs.get(entry, ())]
        if words := [failures[name] for name in mine if name in failures]:
            return entry._replace(refused=f"{len(words)} of {len(mine)} runs failed, the first one: {words[0]}")
        runs = tuple(load_run(by_name[name]) for name in mine)
        entry = entry._replace(runs=runs, quoted=quoted_scores(runs, place / "quoted.json"))
        if entry.task in board.ood and runs:
            on_progress(0.99, f"foreign rows for {entry.method} on {entry.task}")
            return entry._replace(areas=foreign_scores(runs, board.ood[entry.task], place / "ood.json"))
        return entry

    played = {(entry.task, entry.method): ended(entry) for entry, _ in found}
    return [played[pair] for task in board.tasks for method in board.methods if (pair := (task, method)) in played]


def in_order(board: Board) -> list[str]:
    """The tasks, those that are held out last: their step sizes follow from the others."""
    return sorted(board.tasks, key=lambda task: task in board.held_out)


def _jobs(board: Board, entry: Entry, config: Config) -> list[SeriesRun]:
    """The runs of an entry: one for each seed, or one for each seed and client if clients train alone."""
    made = []
    for index in range(board.seeds):
        own = seeded(config, index)
        name, end = f"{entry.task}-{entry.method}", f"seed{own.seed}"
        if entry.method in board.alone:
            made += [
                SeriesRun.of(f"{name}-client{client}-{end}", only(own, client), 1)
                for client in range(own.partition.clients)
            ]
        else:
            made.append(SeriesRun.of(f"{name}-{end}", own, 1))
    return made


def only(config: Config, client: int) -> Config:
    """The config with every client barred but one, which trains in every round."""
    others = [other for other in range(config.partition.clients) if other != client]
    alone = config.selection.model_copy(update={"barred": others, "per_round": 1})
    return config.model_copy(update={"selection": alone})


def seeded(config: Config, index: int) -> Config:
    """The config with the seed of the run with that index."""
    return config.model_copy(update={"seed": config.seed + index})


def note_of(board: Board) -> str:
    """Describe how step sizes were chosen."""
    if board.trials == 1:
        return "Every method has its default step size; nothing was tuned."
    said = (
        f"Step sizes: the best of {board.trials} (the default times {', '.join(f'{f:g}' for f in board.factors)}) by "
        f"{'NLL' if board.criterion == 'nll' else 'accuracy'} on {board.fraction:.0%} of the training rows, one seed "
        "each. Test rows were not used."
    )
    if board.held_out:
        said += (
            f" On {', '.join(board.held_out)} nothing was tuned: each method has its default step size there, times "
            "the median of the factors that it chose on the other tasks."
        )
    return said


def _tuned(board: Board, place: Path, task: str, method: str, factors: Sequence[float]) -> tuple[Entry, Config | None]:
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
    if task in board.held_out:
        factor = median_low(factors) if factors else 1.0
        return Entry(task, method, factor * usual, factor, ""), with_step(config, factor * usual)
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
    chosen = best(trials, grid, by_nll=board.criterion == "nll")
    if chosen is None:
        return Entry(task, method, None, None, "Every step size diverged."), None
    return Entry(task, method, chosen, chosen / usual, ""), with_step(config, chosen)


def with_step(config: Config, step_size: float) -> Config:
    """The config with another step size."""
    steps = config.algorithm.model_copy(update={"step_size": step_size})
    return config.model_copy(update={"algorithm": steps})
