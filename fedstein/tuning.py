"""Step sizes chosen on rows that are neither trained on nor tested on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedstein import metrics, protocol
from fedstein.data import Dataset
from fedstein.data.dataset import fixed_split
from fedstein.errors import FedsteinError, InputError
from fedstein.holdout import share_out
from fedstein.runs.config import Config
from fedstein.runs.files import disk_errors, read_json, write_json
from fedstein.runs.folder import data_checksum
from fedstein.runs.wiring import Wired, client_rows, wire

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the default step size, where no grid is given
TAG = 4711  # of the split: the same rows are held out for every method, step size and seed


class Trial(NamedTuple):
    """One step size with one seed; the scores are means over the last quarter of the rounds, None if it diverged."""

    step_size: float
    seed: int
    accuracy: float | None
    rmse: float | None
    nll: float | None


def hold_out(dataset: Dataset, fraction: float) -> Dataset:
    """The dataset with a share of its training rows, of every label alike, in the place of the test rows."""
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


def wire_inner(config: Config, dataset: Dataset, fraction: float) -> Wired:
    """A run in which clients hold out a share of what they would train on; the rows they evaluate on are left alone."""
    shares = [share_out(x, y, config.evaluate.fraction) for x, y in client_rows(config, dataset)]
    inner = config.evaluate.model_copy(update={"fraction": fraction})
    return wire(config.model_copy(update={"evaluate": inner}), dataset, clients=[(s.x, s.y) for s in shares])


def try_step(config: Config, held: Dataset, step_size: float, seed: int, fraction: float | None = None) -> Trial:
    """A run on the rows that were kept, scored on those held out."""
    steps = config.algorithm.model_copy(update={"step_size": step_size})
    config = config.model_copy(update={"seed": seed, "algorithm": steps})
    wired = wire(config, held) if fraction is None else wire_inner(config, held, fraction)
    try:
        records = [record for _, record in protocol.play(wired.parts, protocol.first(wired.parts))]
    except InputError:
        raise
    except FedsteinError:  # the particles left the finite numbers: this step size is no choice
        return Trial(step_size, seed, None, None, None)
    tail = metrics.tail(records)
    return Trial(step_size, seed, *(tail[name]["mean"] for name in ("accuracy", "rmse", "nll")))


def tune(
    config: Config, held: Dataset, grid: Sequence[float], seeds: int, out: Path, fraction: float | None = None
) -> Iterator[Trial]:
    """The trials one after another; those in ``out`` are not run again.

    ``held`` is what ``hold_out`` gives or, where clients evaluate, the dataset as it is: each of them then holds out
    ``fraction`` of the rows that it would train on.
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
    """A row a step size: means over its seeds, None where one of them diverged."""

    def mean(values: list[float | None]) -> float | None:
        return None if not values or None in values else float(np.mean([v for v in values if v is not None]))

    rows = []
    for step_size in grid:
        mine = [t for t in trials if t.step_size == step_size]
        scores = {name: mean([getattr(t, name) for t in mine]) for name in ("accuracy", "rmse", "nll")}
        rows.append({"step_size": step_size, "seeds": len(mine), **scores})
    return rows


def best(trials: Sequence[Trial], grid: Sequence[float]) -> float | None:
    """The step size with the best mean score over seeds; one that diverged with any seed is out."""
    scored = [(row["accuracy"], row["step_size"]) for row in table(trials, grid) if row["accuracy"] is not None]
    scored += [(-row["rmse"], row["step_size"]) for row in table(trials, grid) if row["rmse"] is not None]
    return max(scored)[1] if scored else None


def key_of(config: Config, held: Dataset, fraction: float | None = None) -> str:
    """What trials must share to be compared: everything but the step size and the seed."""
    plain = config.to_dict()
    plain["seed"], plain["algorithm"]["step_size"] = 0, 0.0
    shared = [plain, data_checksum(held), *([] if fraction is None else [fraction])]
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()


def read_trials(out: Path, key: str) -> list[Trial]:
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
    with disk_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, {"key": key, "config": config.to_dict(), "trials": [trial._asdict() for trial in trials]})
