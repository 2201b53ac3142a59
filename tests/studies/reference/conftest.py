"""Small targets with every row in one place, and small finished runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_run import SMALL_RUN

from fedstein.data import load
from fedstein.models import blr
from fedstein.runs import runner
from fedstein.runs.config import merge, resolve
from fedstein.runs.federate import facts_of, prepare_run
from fedstein.studies.reference import Pooled

SMALL = (*SMALL_RUN, "rounds=2")


@pytest.fixture(scope="session")
def make_target() -> Callable[..., Pooled]:
    """make_target(rows, features, temperature): logistic rows with known weights."""

    def make(rows: int, features: int, temperature: float = 1.0) -> Pooled:
        draw = np.random.default_rng([rows, features])
        x = draw.normal(size=(rows, features)).astype(np.float32)
        logits = x @ np.linspace(1.0, -0.5, features) + 0.3
        y = (draw.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.int32)
        model = blr(features, prior_shape=1.0, prior_rate=0.5)
        return Pooled(model, model.prepare(x), y, temperature)

    return make


@pytest.fixture(scope="session")
def covertype():
    return load("covertype")


@pytest.fixture(scope="session")
def finish(covertype) -> Callable[..., Path]:
    """finish(folder, "selection.kind=ksd"): a real run, small and done."""

    def go(out: Path, *settings: str) -> Path:
        layers = [("small", merge({}, SMALL)), ("settings", merge({}, settings))]
        config, _ = resolve(layers, facts_of(covertype))
        runner.start(prepare_run(config, covertype), out, lambda record: None)
        return out

    return go
