"""Accuracy with and without privacy on the same rows and seeds: Covertype, and heart disease in four hospitals."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fedstein
from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
NOT_NUMBERS = {2: 4, 6: 3}  # columns of codes, and how many codes they have
DROPPED = (10, 11, 12)


def private(epsilon: float, **more: Any) -> dict[str, Any]:
    """``[privacy]``; epsilon 0 is not private."""
    return {"privacy": {"kind": "record", "epsilon": epsilon, "delta": 1e-5, **more}} if epsilon else {}


SECURE: dict[str, dict[str, Any]] = {
    "covertype 10 x 4,000, secure sums": {"sums": "secure"},
    "covertype 10 x 4,000, secure sums without drop-outs": {"sums": "secure", "dropouts": 0},
}


def covertype(epsilon: float, seed: int, out: Path, task: str = "covertype 10 x 4,000") -> dict[str, Any]:
    """Ten clients with 4,000 rows each, drawn at random; the private run and the default that it is paired with."""
    raw = {
        "seed": seed,
        "data": {"name": "covertype"},
        "partition": {"kind": "iid", "clients": 10, "rows_per_client": 4000},
        "sites": {"expand": "mean"},  # particles are scored, in private runs and in others
        "engine": {"threads": 1},
        **private(epsilon, **SECURE.get(task, {})),
    }
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    began, used = time.perf_counter(), time.process_time()
    folder = out / f"covertype-{epsilon:g}-{seed}-{int(time.time())}"
    summary = runner.start(prepare_run(config, dataset), folder, lambda record: None)
    settled = summary["settled"]
    return {
        "task": task, "epsilon": epsilon, "seed": seed, "accuracy": settled["accuracy"],
        "nll": settled["nll"], "ece": settled["ece"], "gaussian_accuracy": summary["gaussian"]["accuracy"],
        "seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used,
    }  # fmt: skip


SMALL = {"data": {"name": "breast_cancer"}, "partition": {"kind": "iid", "clients": 10}}
FEW = {"data": {"name": "covertype"}, "partition": {"kind": "iid", "clients": 10, "rows_per_client": 4000}}
MANY = {"data": {"name": "covertype"}, "partition": {"kind": "iid", "clients": 200, "rows_per_client": 200}}
PVI: dict[str, Any] = {"algorithm": {"kind": "pvi"}, "sites": {"kind": "none"}}
BESIDE: dict[str, dict[str, Any]] = {
    f"{task}, {method}": {**data, **more}
    for task, data in (
        ("breast cancer, 10 clients", SMALL),
        ("covertype, 10 clients", FEW),
        ("covertype, 200 clients", MANY),
    )
    for method, more in (("dsvgd", {}), ("pvi", PVI))
}


def beside_pvi(task: str, epsilon: float, seed: int, out: Path) -> dict[str, Any]:
    """One private run of DSVGD or of partitioned variational inference, all defaults, on the same rows.

    Args:
        task: A key of ``BESIDE``.
        epsilon: The budget at delta 1e-5.
        seed: The seed of rows and noise.
        out: Where the run folder goes.

    Returns:
        The scores on the test rows.
    """
    return scored(task, {**BESIDE[task], **private(epsilon)}, epsilon, seed, out)


CLIENT_LEVEL = "covertype 100 x 400, client"


def client_level(epsilon: float, seed: int, out: Path) -> dict[str, Any]:
    """One run with 100 clients of 400 Covertype rows that protects all rows of a client together.

    Args:
        epsilon: The budget at delta 1e-5.
        seed: The seed of rows and noise.
        out: Where the run folder goes.

    Returns:
        The scores on the test rows.
    """
    partition = {"kind": "iid", "clients": 100, "rows_per_client": 400}
    raw = {"data": {"name": "covertype"}, "partition": partition, **private(epsilon, kind="client", client_rows=400)}
    return scored(CLIENT_LEVEL, raw, epsilon, seed, out)


def scored(task: str, raw: Mapping[str, Any], epsilon: float, seed: int, out: Path) -> dict[str, Any]:
    """Run a config, and return one line of a table."""
    whole = {"seed": seed, "engine": {"threads": 1}, "evaluate": {"every": 1000}, **raw}
    dataset = load_dataset(whole)
    config, _ = resolve(whole, facts_of(dataset))
    used = time.process_time()
    folder = out / f"scored-{epsilon:g}-{seed}-{time.time_ns()}"
    summary = runner.start(prepare_run(config, dataset), folder, lambda record: None)
    found = summary.get("settled") or summary["final"]
    return {
        "task": task, "epsilon": epsilon, "seed": seed, "accuracy": found["accuracy"], "nll": found["nll"],
        "ece": found["ece"], "visits": config.privacy.visits, "cpu_seconds": time.process_time() - used,
    }  # fmt: skip


def hospital(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A hospital's rows as FLamby prepares them: three columns and incomplete rows dropped, codes as 0 and 1."""
    text = (folder / f"processed.{name}.data").read_text()
    lines = [line.split(",") for line in text.split() if not line.startswith("age")]  # with or without a header
    kept = [[cell for i, cell in enumerate(line) if i not in DROPPED] for line in lines]
    table = np.array([[float(cell) for cell in line] for line in kept if not {"?", ""} & set(line)])
    numbers = [i for i in range(table.shape[1] - 1) if i not in NOT_NUMBERS]
    columns = [table[:, i] for i in numbers]
    for index, codes in NOT_NUMBERS.items():
        first = 1 if index == 2 else 0
        columns += [table[:, index] == code for code in range(first + 1, first + codes)]
    return np.stack(columns, axis=1).astype(np.float64), (table[:, -1] > 0).astype(np.int32)


def split_hospitals(folder: Path) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Two thirds of every hospital's rows to train on, a third to test, standardised by its own training rows."""
    from sklearn.model_selection import train_test_split

    parts = []
    for name in HOSPITALS:
        x, y = hospital(folder, name)
        stratify = y if min(np.bincount(y, minlength=2)) > 2 else None
        train, test = train_test_split(
            np.arange(len(y)), test_size=0.34, train_size=0.66, random_state=43, shuffle=True, stratify=stratify
        )
        mean, sd = x[train].mean(axis=0), x[train].std(axis=0, ddof=1)
        scaled = ((x - mean) / np.where(sd > 0, sd, 1.0)).astype(np.float32)
        parts.append((scaled[train], y[train], scaled[test], y[test]))
    return parts


def heart(folder: Path, epsilon: float, seed: int) -> dict[str, Any]:
    """Four hospitals; columns were standardised within each, which stands for scales that are public."""
    parts = split_hospitals(folder)
    began = time.perf_counter()
    posterior = fedstein.fit(
        "blr", [(x, y) for x, y, _, _ in parts], seed=seed, standardise=False, progress=False,
        settings=private(epsilon) or {"rounds": 40, "sites": {"expand": "mean"}},
    )  # fmt: skip
    by_centre = [float(np.mean(posterior.predict(x).argmax(axis=1) == y)) for _, _, x, y in parts]
    rows = np.array([len(y) for *_, y in parts])
    return {
        "task": "heart, 4 hospitals", "epsilon": epsilon, "seed": seed,
        "accuracy": float(np.average(by_centre, weights=rows)), "mean_of_centres": float(np.mean(by_centre)),
        "seconds": time.perf_counter() - began,
    }  # fmt: skip
