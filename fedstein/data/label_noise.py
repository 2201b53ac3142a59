"""Label noise: a share of the training labels of some clients is replaced by other labels.

Studies of robust methods need wrong labels at every client (FedGVI's tasks), or a few clients whose labels are all
wrong. Test rows keep their labels.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedstein.data.dataset import Dataset
from fedstein.errors import InputError


def with_wrong_labels(
    dataset: Dataset, shards: Sequence[np.ndarray], share: float, clients: Sequence[int] | None, seed: int
) -> Dataset:
    """Replace training labels by others, each drawn uniformly from the classes that the row does not have.

    Args:
        dataset: The dataset.
        shards: The row numbers of each client.
        share: The share of a client's labels that is replaced, rounded to whole rows.
        clients: The clients whose labels are replaced; None for all.
        seed: The seed of the run. Every client has its own random numbers.

    Returns:
        The dataset with other training labels; the dataset itself if the share is 0.

    Raises:
        InputError: The task is a regression, or there is no client of that number.
    """
    if share == 0.0:
        return dataset
    if dataset.task != "classification":
        raise InputError("partition.flip replaces labels, and a regression has none; set partition.flip = 0")
    chosen = range(len(shards)) if clients is None else clients
    wrong = [client for client in chosen if not 0 <= client < len(shards)]
    if wrong:
        raise InputError(f"partition.flip_clients = {wrong}: expected ids from 0 to {len(shards) - 1}")
    labels = dataset.train_y.copy()
    for client in chosen:
        stream = np.random.SeedSequence([seed, zlib.crc32(b"fedstein.partition.flip"), client])
        generator = np.random.default_rng(stream)
        rows = shards[client]
        picked = rows[generator.permutation(len(rows))[: round(share * len(rows))]]
        moves = generator.integers(1, dataset.classes, size=len(picked))
        labels[picked] = (labels[picked] + moves) % dataset.classes
    return replace(dataset, train_y=labels)
