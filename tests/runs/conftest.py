"""Small real runs: a few hundred embedded Covertype rows, seconds instead of minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedstein.data import load
from fedstein.runs import runner
from fedstein.runs.config import merge, resolve
from fedstein.runs.federate import PreparedRun, facts_of, prepare_run

SMALL = [
    "partition.clients=4",
    "partition.rows_per_client=60",
    "algorithm.particles=5",
    "algorithm.local_steps=3",
    "sites.kind=particles",
    "algorithm.distill_steps=2",
    "algorithm.batch_size=25",
    "rounds=6",
    "checkpoint.every=2",
    "engine.threads=1",
]


@pytest.fixture(scope="session")
def covertype():
    return load("covertype")


@pytest.fixture
def make(covertype):
    """Settings -> a run that is ready to start."""

    def prepared(*settings: str) -> PreparedRun:
        layers = [("small", merge({}, SMALL)), ("settings", merge({}, settings))]
        config, _ = resolve(layers, facts_of(covertype))
        return prepare_run(config, covertype)

    return prepared


@pytest.fixture
def run(make):
    """Settings -> the finished folder of a run."""

    def go(out: Path, *settings: str) -> dict[str, Any]:
        return runner.start(make(*settings), out, lambda record: None)

    return go
