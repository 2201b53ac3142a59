"""Networks with and without privacy on the same rows and seeds: digits, ten clients."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run
from fedstein.studies.privacy.accuracy import private

TASKS = {"digits, 16 units": [16], "digits, 100 units": [100]}


def digits(epsilon: float, seed: int, out: Path, task: str) -> dict[str, Any]:
    """Ten clients with Dirichlet(0.5) labels; epsilon 0 is the default run, which is not private."""
    raw = {
        "seed": seed,
        "data": {"name": "digits"},
        "partition": {"kind": "dirichlet", "clients": 10, "concentration": 0.5},
        "engine": {"threads": 1},
        "evaluate": {"every": 1000},
        "model": {"hidden": TASKS[task]},
        **private(epsilon),
    }
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    began, used = time.perf_counter(), time.process_time()
    folder = out / f"{task.replace(', ', '-').replace(' ', '-')}-{epsilon:g}-{seed}-{int(time.time())}"
    found = runner.start(prepare_run(config, dataset), folder, lambda record: None)["final"]
    return {
        "task": task, "epsilon": epsilon, "seed": seed, "accuracy": found["accuracy"], "nll": found["nll"],
        "ece": found["ece"], "seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used,
    }  # fmt: skip
