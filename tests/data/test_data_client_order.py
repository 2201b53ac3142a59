"""The order of clients: a permutation of the same shards, in blocks by label mix or shuffled, and round robin in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedstein import data
from fedstein.data.partition_kinds import PARTITION_KINDS, given_names, share_rows
from fedstein.errors import InputError
from fedstein.federation.protocol import first, run_rounds
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, prepare_run

KINDS: dict[str, dict[str, Any]] = {
    "iid": {},
    "label_ratio": {},
    "classes_per_client": {"classes": 3},
    "dirichlet": {"concentration": 0.5},
}


@pytest.fixture(scope="module")
def covertype() -> data.Dataset:
    return data.load("covertype")


@pytest.fixture(scope="module")
def digits() -> data.Dataset:
    return data.load("digits")


def shards_of(dataset: data.Dataset, kind: str, order: str, seed: int = 0) -> list[np.ndarray]:
    settings = PARTITION_KINDS[kind].settings(clients=12, rows_per_client=30, order=order, **KINDS[kind])
    return share_rows(dataset, settings, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_every_order_has_the_same_clients(kind: str, covertype: data.Dataset, digits: data.Dataset) -> None:
    dataset = covertype if kind == "label_ratio" else digits
    dealt = {tuple(shard) for shard in shards_of(dataset, kind, "dealt")}
    for order in ("blocks", "shuffled"):
        found = shards_of(dataset, kind, order)
        assert {tuple(shard) for shard in found} == dealt
        assert [tuple(s) for s in found] != [tuple(s) for s in shards_of(dataset, kind, "dealt")]


def test_blocks_put_clients_with_the_same_labels_together(covertype: data.Dataset, digits: data.Dataset) -> None:
    majority = [int(np.mean(covertype.train_y[s]) > 0.5) for s in shards_of(covertype, "label_ratio", "dealt")]
    assert majority == [0, 1] * 6, "dealt in turn: neighbours differ"
    majority = [int(np.mean(covertype.train_y[s]) > 0.5) for s in shards_of(covertype, "label_ratio", "blocks")]
    assert majority == [0] * 6 + [1] * 6
    held = [sorted(set(digits.train_y[s].tolist())) for s in shards_of(digits, "classes_per_client", "blocks")]
    assert held == sorted(held)


def test_the_shuffled_order_is_the_seeds(digits: data.Dataset) -> None:
    first_shards, again = (shards_of(digits, "iid", "shuffled", 3) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first_shards, again, strict=True))
    dealt = {seed: [tuple(s) for s in shards_of(digits, "iid", "dealt", seed)] for seed in (3, 4)}
    orders = {
        seed: [dealt[seed].index(tuple(s)) for s in shards_of(digits, "iid", "shuffled", seed)] for seed in (3, 4)
    }
    assert orders[3] != orders[4]


def test_names_follow_their_clients(covertype: data.Dataset) -> None:
    from dataclasses import replace

    owners = np.arange(60) % 3
    small = replace(
        covertype,
        train_x=covertype.train_x[:60],
        train_y=np.where(owners == 1, 0, 1).astype(covertype.train_y.dtype),
        client_of_row=owners,
        client_names=("a", "b", "c"),
    )
    for order, names in (("dealt", ["a", "b", "c"]), ("blocks", ["b", "a", "c"])):
        settings = PARTITION_KINDS["given"].settings(clients=3, order=order)
        assert given_names(small, settings, 0) == names
        owned = [{int(owners[row]) for row in shard} for shard in share_rows(small, settings, 0)]
        assert owned == [{"abc".index(name)} for name in names]


def test_nodes_have_no_order_that_a_server_could_know() -> None:
    raw = {"data": {"name": "nodes", "features": ["a"], "target": "y", "labels": ["0", "1"], "task": "classification"}}
    dataset = data.load("nodes", **{k: v for k, v in raw["data"].items() if k != "name"})
    with pytest.raises(InputError, match=r"partition\.order = 'blocks' needs rows at the server"):
        resolve({**raw, "partition": {"clients": 2, "order": "blocks"}}, facts_of(dataset))


@pytest.mark.slow
def test_blocks_make_round_robin_periodic(covertype: data.Dataset) -> None:
    """The paper's round robin "vibrates periodically and substantially": the spectrum peaks at the length of a pass."""

    def power(order: str) -> tuple[int, float]:
        raw = {
            "rounds": 48,
            "partition": {"clients": 8, "rows_per_client": 200, "order": order},
            "sites": {"kind": "particles", "density": "reference"},
            "selection": {"kind": "round_robin"},
            "algorithm": {"particles": 8},
            "engine": {"threads": 1},
        }
        context = prepare_run(resolve(raw, facts_of(covertype))[0], covertype).context
        accuracy = np.array([record["accuracy"] for _, record in run_rounds(context, first(context))])[16:]
        spectrum = np.abs(np.fft.rfft(accuracy - accuracy.mean())) ** 2
        period = len(accuracy) // int(np.argmax(spectrum))
        return period, float(spectrum[len(accuracy) // 8] / spectrum.sum())

    period, share = power("blocks")
    assert period == 8
    assert share > 0.3
    _, dealt = power("dealt")
    assert dealt < share / 2
