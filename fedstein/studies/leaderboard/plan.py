"""The plan of a leaderboard, read from TOML.

    seeds = 3                  # of every task and method
    trials = 5                 # step sizes that each method may try on a task
    fraction = 0.2             # of the training rows that trials are scored on
    criterion = "nll"          # what trials are compared by on the held-out rows: "nll" or "accuracy"
    default = "dsvgd"          # the method that others are compared with
    held_out = ["NAME"]        # tasks on which nothing is tuned
    [tasks.NAME]               # settings of runs: rounds, [tasks.NAME.data], [tasks.NAME.partition], ...
    ood = "DATASET"            # of a task: rows of another kind, which uncertainty should tell from the test rows
    [methods.NAME]             # settings of runs: [methods.NAME.algorithm], [methods.NAME.selection], ...

Without methods, every registered method takes part with its defaults. A method with ``alone = true`` is a reference:
every client trains by itself, and its scores are means over the clients. ``tasks = ["NAME"]`` of a method names the
tasks that it takes part in; without it, it takes part in all.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedstein.data import DATASETS
from fedstein.errors import InputError
from fedstein.inference.methods import METHODS

MOST_TRIALS = 9
KEYS = ("seeds", "trials", "fraction", "criterion", "default", "held_out", "tasks", "methods")
CRITERIA = ("nll", "accuracy")


class Board(NamedTuple):
    """The plan of a leaderboard.

    Attributes:
        tasks: Settings by the name of the task.
        methods: Settings by the name of the method.
        default: The method that the others are compared with.
        seeds: Seeds of every task and method.
        trials: Step sizes that each method may try on each task; 1 tries none and takes the default.
        fraction: The share of the training rows that trials are scored on.
        criterion: What trials are compared by: ``nll``, or ``accuracy``, which is RMSE for a regression.
        held_out: Tasks on which nothing is tuned: a method takes its default step size there, times the median of the
            factors that it chose on the other tasks.
        alone: The methods with which every client trains by itself.
        ood: By the name of a task, the dataset whose test rows are of another kind than the task's.
        limits: By the name of a method, the tasks that it takes part in; a method that is not named has all.
    """

    tasks: dict[str, dict[str, Any]]
    methods: dict[str, dict[str, Any]]
    default: str
    seeds: int = 3
    trials: int = 5
    fraction: float = 0.2
    criterion: str = "nll"
    held_out: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    ood: Mapping[str, str] = {}
    limits: Mapping[str, tuple[str, ...]] = {}

    @property
    def factors(self) -> list[float]:
        """The multiples of the default step size to try: powers of two around 1, as many as there are trials."""
        low = -(self.trials // 2)
        return [2.0 ** (low + i) for i in range(self.trials)]

    def has(self, task: str, method: str) -> bool:
        """Whether a method takes part in a task.

        Args:
            task: The name of the task.
            method: The name of the method.

        Returns:
            Whether it does.
        """
        return method not in self.limits or task in self.limits[method]

    def only(self, names: Sequence[str]) -> Board:
        """The same plan with some of its tasks. Tasks that are held out stay so.

        Args:
            names: The tasks; all if there are none.

        Returns:
            The plan.

        Raises:
            InputError: There is no such task.
        """
        if unknown := [name for name in names if name not in self.tasks]:
            raise InputError(f"--task {unknown[0]}: expected one of: {', '.join(self.tasks)}")
        kept = {name: settings for name, settings in self.tasks.items() if not names or name in names}
        return self._replace(
            tasks=kept,
            held_out=tuple(name for name in self.held_out if name in kept),
            ood={name: dataset for name, dataset in self.ood.items() if name in kept},
        )


def read_board(path: Path) -> Board:
    """Read a plan.

    Args:
        path: The TOML file.

    Returns:
        The plan.

    Raises:
        InputError: The file is not there or not TOML, or a key is wrong.
    """
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected the TOML file of a leaderboard") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    return board_of(raw, str(path))


def board_of(raw: Mapping[str, Any], where: str) -> Board:
    """Check a plan.

    Args:
        raw: The content of the file.
        where: What messages call it.

    Returns:
        The plan.

    Raises:
        InputError: A key is unknown, missing or has a wrong value.
    """
    for key in raw:
        if key not in KEYS:
            raise InputError(f"{where}: unknown key {key!r}; expected one of: {', '.join(KEYS)}")
    tasks = _tables(raw.get("tasks"), f"{where}: [tasks.NAME]")
    if not tasks:
        raise InputError(f"{where}: expected at least one [tasks.NAME] with the settings of its runs")
    everybody = {name: {"algorithm": {"kind": name}} for name in METHODS}
    methods = _tables(raw.get("methods"), f"{where}: [methods.NAME]") or everybody
    default = raw.get("default", "dsvgd" if "dsvgd" in methods else next(iter(methods)))
    if default not in methods:
        raise InputError(
            f"{where}: default = {default!r} is not a method of the plan; expected one of: {', '.join(methods)}"
        )
    seeds, trials, fraction = raw.get("seeds", 3), raw.get("trials", 5), raw.get("fraction", 0.2)
    for name, value, most in (("seeds", seeds, 1000), ("trials", trials, MOST_TRIALS)):
        if type(value) is not int or not 1 <= value <= most:
            raise InputError(f"{where}: {name} = {value!r}; expected a whole number from 1 to {most}")
    if not isinstance(fraction, float) or not 0 < fraction < 1:
        raise InputError(f"{where}: fraction = {fraction!r}; expected a number between 0 and 1")
    criterion = raw.get("criterion", "nll")
    if criterion not in CRITERIA:
        raise InputError(f"{where}: criterion = {criterion!r}; expected one of: {', '.join(CRITERIA)}")
    held_out = raw.get("held_out", [])
    if not isinstance(held_out, list) or not set(held_out) < set(tasks):
        raise InputError(
            f"{where}: held_out = {held_out!r}; expected a list of some, but not all, of: {', '.join(tasks)}"
        )
    alone = tuple(name for name, settings in methods.items() if settings.pop("alone", False) is True)
    limits = {name: settings.pop("tasks") for name, settings in methods.items() if "tasks" in settings}
    for name, own in limits.items():
        if not isinstance(own, list) or not set(own) <= set(tasks):
            raise InputError(f"{where}: tasks = {own!r} of the method {name}; expected a list of: {', '.join(tasks)}")
    chosen = {name: tuple(own) for name, own in limits.items()}
    ood = {name: settings.pop("ood") for name, settings in tasks.items() if "ood" in settings}
    for name, dataset in ood.items():
        if dataset not in DATASETS or not DATASETS[dataset].features:
            known = ", ".join(each for each, info in DATASETS.items() if info.features)
            raise InputError(f"{where}: ood = {dataset!r} of the task {name}; expected one of: {known}")
    return Board(tasks, methods, default, seeds, trials, fraction, criterion, tuple(held_out), alone, ood, chosen)


def _tables(found: Any, where: str) -> dict[str, dict[str, Any]]:
    if found is None:
        return {}
    if not isinstance(found, Mapping) or not all(isinstance(each, Mapping) for each in found.values()):
        raise InputError(f"{where}: expected tables of settings")
    for name in found:
        if not name.replace("_", "").replace("-", "").isalnum():
            raise InputError(f"{where}: {name!r} names folders; use letters, digits, - and _")
    return {name: dict(each) for name, each in found.items()}
