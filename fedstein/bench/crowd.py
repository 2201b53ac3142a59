"""Any number of clients for a BLR, made when they are asked for: client k's rows depend on k alone.

A client's 54 features are uniform on an interval of unit variance around a centre of its own; its labels are Bernoulli
with the logit x . w, w the same for everybody and drawn once from N(0, 4/54). Centres are N(0, 1/4). Bits come from
NumPy's Philox, keyed by the client.
"""

from __future__ import annotations

import math

import numpy as np

from fedstein.data import Dataset
from fedstein.lazy import Lazy
from fedstein.protocol import Parts
from fedstein.runs.config import merge, resolve
from fedstein.runs.wiring import facts_of, wire

FEATURES, ROWS = 54, 500
TEST = -1  # a client that nobody is


def rows_of(client: int, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """x and y of one client."""
    bits = np.random.Generator(np.random.Philox(key=[1 + client, 7]))
    centre = bits.standard_normal(FEATURES, np.float32) * 0.5
    x = (bits.random((rows, FEATURES), np.float32) - 0.5) * np.float32(math.sqrt(12)) + centre
    return x, (bits.random(rows, np.float32) < 1 / (1 + np.exp(-(x @ WEIGHTS)))).astype(np.int32)


WEIGHTS = np.random.Generator(np.random.Philox(key=[0, 7])).standard_normal(FEATURES, np.float32) * (2 / FEATURES**0.5)


def crowd(clients: int, pool: int, threads: int, budget: int = 4096) -> Parts:
    """A run over that many clients, asking ``pool`` of them a round (0: all); no client's rows exist yet."""
    test_x, test_y = rows_of(TEST, 1000)
    dataset = Dataset(
        name="covertype",  # whose defaults fit: two classes, the same columns
        task="classification",
        train_x=test_x[:2],
        train_y=test_y[:2],
        test_x=test_x,
        test_y=test_y,
        classes=2,
        feature_names=tuple(f"x{i}" for i in range(FEATURES)),
        mean=np.zeros(FEATURES),
        scale=np.ones(FEATURES),
    )
    settings = [
        f"partition.clients={clients}",
        "partition.kind=iid",
        f"selection.pool={pool}",
        f"engine.threads={threads}",
        f"engine.budget={budget}",
        "evaluate.every=1000000",
        "rounds=1000000",
    ]
    config, _ = resolve(merge({}, settings), facts_of(dataset))
    return wire(config, dataset, clients=Lazy(clients, rows_of)).parts
