"""Synthetic clients for a BLR, any number of them, made on access. The rows of client k depend on k alone.

The 54 features of a client are uniform with unit variance around the client's own centre, which is drawn from
N(0, 1/4). The labels are Bernoulli with the logit x . w, where w is the same for all clients and is drawn once from
N(0, 4/54). The random bits come from NumPy's Philox generator with the client as its key.
"""

from __future__ import annotations

import math

import numpy as np

from fedstein.data import Dataset
from fedstein.data.lazy import Lazy
from fedstein.federation.round_context import RoundContext
from fedstein.runs.config import merge, resolve
from fedstein.runs.federate import facts_of, prepare_run

FEATURES, ROWS = 54, 500
TEST = -1  # reserved id for the test data


def rows_of(client: int, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Make x and y of one client."""
    bits = np.random.Generator(np.random.Philox(key=[1 + client, 7]))
    centre = bits.standard_normal(FEATURES, np.float32) * 0.5
    x = (bits.random((rows, FEATURES), np.float32) - 0.5) * np.float32(math.sqrt(12)) + centre
    return x, (bits.random(rows, np.float32) < 1 / (1 + np.exp(-(x @ WEIGHTS)))).astype(np.int32)


WEIGHTS = np.random.Generator(np.random.Philox(key=[0, 7])).standard_normal(FEATURES, np.float32) * (2 / FEATURES**0.5)


def synthetic_federation(clients: int, pool: int, threads: int, budget: int = 4096) -> RoundContext:
    """Prepare a run over synthetic clients. No rows are made before they are needed.

    Args:
        clients: The number of clients.
        pool: The number of clients that report in a round; 0 for all.
        threads: The number of XLA threads.
        budget: ``engine.budget`` in MiB.
    """
    test_x, test_y = rows_of(TEST, 1000)
    dataset = Dataset(
        name="covertype",  # its defaults suit two classes and this number of columns
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
    return prepare_run(config, dataset, clients=Lazy(clients, rows_of)).context
