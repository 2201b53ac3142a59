"""The numbering of clients: in the order of the partition, in blocks of clients with the same labels, or shuffled.

Round robin visits clients by number, so the order decides which labels consecutive rounds see. The paper's round robin
oscillates with the period of a pass. This happens if clients with the same labels follow each other.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedstein.data.dataset import Dataset

Order = Literal["dealt", "blocks", "shuffled"]


def client_order(dataset: Dataset, shards: Sequence[np.ndarray], order: Order, seed: int) -> list[int]:
    """The order in which the shards of a partition become clients 0, 1, ...

    Args:
        dataset: The dataset.
        shards: The row numbers of each client, in the order of the partition.
        order: ``"dealt"`` keeps this order; ``"blocks"`` sorts the shards by label mix, or by mean target for a
            regression; ``"shuffled"`` permutes them.
        seed: The seed of the run, for ``"shuffled"``.

    Returns:
        For each client id, the index of its shard.
    """
    if order == "dealt":
        return list(range(len(shards)))
    if order == "shuffled":
        stream = np.random.SeedSequence([seed, zlib.crc32(b"fedstein.partition.order")])
        return np.random.default_rng(stream).permutation(len(shards)).tolist()
    keys = [_label_mix(dataset, shard) for shard in shards]
    return sorted(range(len(shards)), key=lambda index: keys[index])


def _label_mix(dataset: Dataset, shard: np.ndarray) -> tuple[float, ...]:
    """Return a sort key: the most frequent label, then the shares of labels 0, 1, ..., the largest first."""
    y = dataset.train_y[shard]
    if dataset.task == "regression":
        return (float(np.mean(y)),)
    shares = np.bincount(y, minlength=dataset.classes) / len(y)
    return (float(np.argmax(shares)), *(-shares).tolist())
