"""Choosing step sizes on rows that are used neither for training nor for testing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedstein.data import Dataset
from fedstein.data.dataset import fixed_split
from fedstein.data.holdout import split_client
from fedstein.errors import FedsteinError, InputError
from fedstein.evaluation import metrics
from fedstein.federation import protocol
from fedstein.files import disk_errors, read_json, write_json
from fedstein.runs.config import Config
from fedstein.runs.federate import PreparedRun, client_rows, prepare_run
from fedstein.runs.folder import data_checksum

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # multiples of the step size of the config, if there is no grid
TAG = 4711  # identifies the split: every method, step size and seed holds out the same rows


class Trial(NamedTuple):
    """One step size with one seed.

    The scores are means over the last quarter of the rounds, or None if the run diverged.
    """

    step_size: float
    seed: int
    accuracy: float | None
    rmse: float | None
    nll: float | None


def hold_out(dataset: Dataset, fraction: float) -> Dataset:
    """Replace the test rows of a dataset by a share of its training rows, the same share of every label.

    Args:
        dataset: The dataset.
        fraction: The share of the training rows to hold out.

    Returns:
        The dataset with fewer training rows, and with the held-out rows as test rows.
    """
    strata = dataset.train_y if dataset.task == "classification" else np.zeros(len(dataset.train_y), int)
    keep, held = fixed_split(strata, fraction, TAG)
    owners = dataset.client_of_row
    return replace(
        dataset,
        train_x=dataset.train_x[keep],
        train_y=dataset.train_y[keep],
        test_x=dataset.train_x[held],
        test_y=dataset.train_y[held],
        client_of_row=None if owners is None else owners[keep],
    )


def prepare_inner(config: Config, dataset: Dataset, fraction: float) -> PreparedRun:
    """Prepare a run in which each client holds out a share of its training rows.

    The rows on which the clients would evaluate are not used.

    Args:
        config: The config of the run.
        dataset: The dataset.
        fraction: The share of each client's training rows to hold out.
    """
    shares = [split_client(x, y, config.evaluate.fraction) for x, y in client_rows(config, dataset)]
    inner = config.evaluate.model_copy(update={"fraction": fraction})
    return prepare_run(config.model_copy(update={"evaluate": inner}), dataset, clients=[(s.x, s.y) for s in shares])


def try_step(config: Config, held: Dataset, step_size: float, seed: int, fraction: float | None = None) -> Trial:
    """Run one step size with one seed, and score it on held-out rows.

    Args:
        config: The config of the run.
        held: The dataset, as for ``tune``.
        step_size: The step size to try.
        seed: The seed of the run.
        fraction: As for ``tune``.

    Returns:
        The trial, without scores if the run diverged.

    Raises:
        InputError: If the config and the data do not fit.
    """
    steps = config.algorithm.model_copy(update={"step_size": step_size})
    config = config.model_copy(update={"seed": seed, "algorithm": steps})
    run = prepare_run(config, held) if fraction is None else prepare_inner(config, held, fraction)
    try:
        records = [record.to_dict() for _, record in protocol.run_rounds(run.context, protocol.first(run.context))]
    except InputError:
        raise
    except FedsteinError:  # the particles are no longer finite: the step size is too large
        return Trial(step_size, seed, None, None, None)
    tail = metrics.tail(records)
    return Trial(step_size, seed, *(tail[name]["mean"] for name in ("accuracy", "rmse", "nll")))


def tune(
    config: Config, held: Dataset, grid: Sequence[float], seeds: int, out: Path, fraction: float | None = None
) -> Iterator[Trial]:
    """Try every step size with every seed, and record each trial in a file.

    Args:
        config: The config of the runs.
        held: The result of ``hold_out``; or, if clients evaluate, the dataset itself.
        grid: The step sizes.
        seeds: The number of seeds, starting with that of the config.
        out: The JSON file for the trials. Trials that it holds are not run again.
        fraction: If clients evaluate: the share of its training rows that each client holds out. Otherwise None.

    Yields:
        The trials, one after another.

    Raises:
        InputError: If ``out`` belongs to another config or is damaged.
    """
    key = key_of(config, held, fraction)
    kept = {(trial.step_size, trial.seed): trial for trial in read_trials(out, key)}
    for seed in range(config.seed, config.seed + seeds):
        for step_size in grid:
            if (step_size, seed) not in kept:
                kept[step_size, seed] = try_step(config, held, step_size, seed, fraction)
                write_trials(out, key, config, list(kept.values()))
            yield kept[step_size, seed]


def table(trials: Sequence[Trial], grid: Sequence[float]) -> list[dict[str, Any]]:
    """Average the trials over seeds.

    Args:
        trials: The trials.
        grid: The step sizes.

    Returns:
        A row for each step size. A score is None if one of its seeds diverged.
    """

    def mean(values: list[float | None]) -> float | None:
        return None if not values or None in values else float(np.mean([v for v in values if v is not None]))

    rows = []
    for step_size in grid:
        mine = [t for t in trials if t.step_size == step_size]
        scores = {name: mean([getattr(t, name) for t in mine]) for name in ("accuracy", "rmse", "nll")}
        rows.append({"step_size": step_size, "seeds": len(mine), **scores})
    return rows


def best(trials: Sequence[Trial], grid: Sequence[float], by_nll: bool = False) -> float | None:
    """Return the step size with the best mean score over seeds, or None if all of them diverged.

    Args:
        trials: The trials.
        grid: The step sizes. One that diverged with any seed is not chosen.
        by_nll: Whether the score is the NLL if there is one, instead of accuracy or RMSE.
    """
    rows = table(trials, grid)
    if by_nll and (known := [(-row["nll"], row["step_size"]) for row in rows if row["nll"] is not None]):
        return max(known)[1]
    scored = [(row["accuracy"], row["step_size"]) for row in rows if row["accuracy"] is not None]
    scored += [(-row["rmse"], row["step_size"]) for row in rows if row["rmse"] is not None]
    return max(scored)[1] if scored else None


def key_of(config: Config, held: Dataset, fraction: float | None = None) -> str:
    """Return a checksum of everything that trials must share to be compared: all but the step size and the seed."""
    plain = config.to_dict()
    plain["seed"], plain["algorithm"]["step_size"] = 0, 0.0
    shared = [plain, data_checksum(held), *([] if fraction is None else [fraction])]
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()


def read_trials(out: Path, key: str) -> list[Trial]:
    """Read the trials of an earlier call.

    Raises:
        InputError: If the file belongs to another config or is damaged.
    """
    if not out.exists():
        return []
    content = read_json(out, "the trials of fedstein tune")
    if not isinstance(content, dict) or content.get("key") != key:
        raise InputError(f"{out} belongs to another tuning: its config or rows differ; choose another file with --out")
    try:
        return [Trial(**trial) for trial in content["trials"]]
    except (KeyError, TypeError):
        raise InputError(f"{out} is damaged: expected the trials of fedstein tune; remove it to start anew") from None


def write_trials(out: Path, key: str, config: Config, trials: Sequence[Trial]) -> None:
    """Write all trials so far."""
    with disk_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, {"key": key, "config": config.to_dict(), "trials": [trial._asdict() for trial in trials]})
