"""What every partition promises, and the errors when it cannot be kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein import data
from fedstein.data import PARTITIONS, Dataset, partition
from fedstein.data.class_assignment import balanced_classes
from fedstein.errors import InputError


def toy(counts: list[int], clients: int = 0, task: str = "classification") -> Dataset:
    """Rows of each label in random order; with clients, dealt round."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.int32)
    x = np.zeros((len(y), 1), np.float32)
    regression = task == "regression"
    return Dataset(
        name="toy",
        task=task,
        train_x=x,
        train_y=y.astype(np.float32) if regression else y,
        test_x=x[:1],
        test_y=y[:1],
        classes=0 if regression else len(counts),
        feature_names=("a",),
        mean=np.zeros(1),
        scale=np.ones(1),
        label_names=() if regression else tuple(f"label{i}" for i in range(len(counts))),
        client_names=tuple(f"site{i}" for i in range(clients)),
        client_of_row=np.arange(len(y)) % clients if clients else None,
    )


def table(dataset: Dataset, shards: list[np.ndarray]) -> np.ndarray:
    return np.array([np.bincount(dataset.train_y[shard], minlength=dataset.classes) for shard in shards])


def assert_disjoint(dataset: Dataset, shards: list[np.ndarray]) -> None:
    rows = np.concatenate(shards)
    assert len(np.unique(rows)) == len(rows)
    assert rows.min() >= 0
    assert rows.max() < len(dataset.train_y)
    assert all(len(shard) > 0 and shard.dtype == np.int64 for shard in shards)


@pytest.mark.parametrize("rows", [0, 20])
@pytest.mark.parametrize("kind", PARTITIONS)
def test_every_kind_is_seeded_and_disjoint(kind: str, rows: int) -> None:
    dataset = toy([150, 150], clients=6)
    first, again, other = (
        partition(dataset, kind, clients=6, rows_per_client=rows, seed=seed, classes=2, concentration=1.0)
        for seed in (3, 3, 4)
    )
    assert len(first) == 6
    assert_disjoint(dataset, first)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    if rows:
        assert [len(shard) for shard in first] == [rows] * 6
    else:
        assert sum(map(len, first)) == 300


@given(n=st.integers(1, 200), clients=st.integers(1, 40), seed=st.integers(0, 2**40))
def test_iid_shares_everything_evenly(n: int, clients: int, seed: int) -> None:
    dataset = toy([n, n])
    if clients > 2 * n:
        with pytest.raises(InputError, match="at most"):
            partition(dataset, "iid", clients=clients, rows_per_client=0, seed=seed)
        return
    shards = partition(dataset, "iid", clients=clients, rows_per_client=0, seed=seed)
    assert_disjoint(dataset, shards)
    sizes = [len(shard) for shard in shards]
    assert sum(sizes) == 2 * n
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("clients", [1, 2, 5, 30])
def test_label_ratio_with_fixed_rows(clients: int) -> None:
    dataset = toy([2000, 2000])
    counts = table(dataset, partition(dataset, "label_ratio", clients=clients, rows_per_client=100, seed=1))
    for client, row in enumerate(counts.tolist()):
        assert row == ([90, 10] if client % 2 == 0 else [10, 90])


@given(
    counts=st.tuples(st.integers(300, 900), st.integers(300, 900)),
    clients=st.integers(1, 12),
    ratio=st.sampled_from([0.5, 0.7, 0.9, 1.0]),
)
def test_label_ratio_shares_out_at_the_ratio(counts: tuple[int, int], clients: int, ratio: float) -> None:
    dataset = toy(list(counts))
    shards = partition(dataset, "label_ratio", clients=clients, rows_per_client=0, seed=0, ratio=ratio)
    assert_disjoint(dataset, shards)
    got = table(dataset, shards)
    size = got.sum(axis=1)
    favoured = got[np.arange(clients), np.arange(clients) % 2]
    assert (np.abs(favoured - ratio * size) <= 2).all()
    for kind in (0, 1):
        assert len(size[kind::2]) == 0 or np.ptp(size[kind::2]) <= 2


def test_label_ratio_uses_every_row_where_the_ratio_allows_it() -> None:
    dataset = toy([500, 300])
    shards = partition(dataset, "label_ratio", clients=8, rows_per_client=0, seed=0)
    assert sum(map(len, shards)) == 800
    lopsided = partition(toy([1000, 50]), "label_ratio", clients=4, rows_per_client=0, seed=0)
    assert {len(shard) for shard in lopsided} == {25}


@given(clients=st.integers(1, 60), classes=st.integers(1, 12), data_=st.data())
@settings(deadline=None, max_examples=30)
def test_balanced_deal(clients: int, classes: int, data_: st.DataObject) -> None:
    each = data_.draw(st.integers(1, classes))
    held = balanced_classes(clients, each, classes, np.random.default_rng(data_.draw(st.integers(0, 99))))
    assert (held.sum(axis=1) == each).all()
    assert np.ptp(held.sum(axis=0)) <= 1


@pytest.mark.parametrize(("clients", "rows"), [(27, 300), (120, 100), (27, 0), (10, 301)])
def test_classes_per_client_on_nine_balanced_classes(clients: int, rows: int) -> None:
    dataset = toy([1500] * 9)
    shards = partition(dataset, "classes_per_client", clients=clients, rows_per_client=rows, seed=2)
    assert_disjoint(dataset, shards)
    counts = table(dataset, shards)
    assert ((counts > 0).sum(axis=1) == 3).all()
    assert np.ptp((counts > 0).sum(axis=0)) <= 1
    if rows:
        assert (counts.sum(axis=1) == rows).all()
        held = np.sort(counts, axis=1)[:, -3:]
        assert (np.ptp(held, axis=1) <= (1 if rows % 3 else 0)).all()
    else:
        assert counts.sum() == 13_500


def test_balanced_deal_mixes_the_classes() -> None:
    dataset = toy([1500] * 9)
    counts = table(dataset, partition(dataset, "classes_per_client", clients=27, rows_per_client=300, seed=0))
    assert len({tuple(row > 0) for row in counts}) > 9


def test_random_deal_names_the_class_that_runs_out() -> None:
    dataset = toy([100] * 9)
    with pytest.raises(InputError, match=r"class \d \(label\d\).*runs out"):
        partition(dataset, "classes_per_client", clients=27, rows_per_client=33, seed=0, deal="random")
    shards = partition(dataset, "classes_per_client", clients=27, rows_per_client=9, seed=0, deal="random")
    counts = table(dataset, shards)
    assert set(np.unique(counts)) == {0, 3}


@given(concentration=st.sampled_from([1e-3, 0.1, 1.0, 100.0]), seed=st.integers(0, 50), tight=st.booleans())
@settings(deadline=None)
def test_dirichlet_with_fixed_rows(concentration: float, seed: int, tight: bool) -> None:
    dataset = toy([40, 60, 20])
    shards = partition(
        dataset,
        "dirichlet",
        clients=6,
        rows_per_client=20 if tight else 8,
        seed=seed,
        concentration=concentration,
    )
    assert_disjoint(dataset, shards)
    assert {len(shard) for shard in shards} == {20 if tight else 8}


def test_dirichlet_concentration_means_something() -> None:
    dataset = toy([1000] * 5)

    def top_share(concentration: float) -> float:
        shards = partition(dataset, "dirichlet", clients=10, rows_per_client=100, seed=0, concentration=concentration)
        return float(table(dataset, shards).max(axis=1).mean() / 100)

    assert top_share(0.05) > 0.8
    assert top_share(100.0) < 0.35


def test_dirichlet_shares_everything_out_and_leaves_nobody_empty() -> None:
    dataset = toy([500] * 4)
    shards = partition(dataset, "dirichlet", clients=12, rows_per_client=0, seed=0)
    assert_disjoint(dataset, shards)
    assert sum(map(len, shards)) == 2000
    with pytest.raises(InputError, match=r"empty one in 1000 draws.*raise it"):
        partition(dataset, "dirichlet", clients=100, rows_per_client=0, seed=0, concentration=0.01)


def test_given_follows_the_client_column() -> None:
    dataset = toy([50, 50], clients=4)
    assert dataset.client_of_row is not None
    for clients in (None, 0, 4):
        for client, shard in enumerate(partition(dataset, "given", clients=clients, rows_per_client=0, seed=0)):
            assert (dataset.client_of_row[shard] == client).all()
            assert len(shard) == 25


def test_given_works_for_regression() -> None:
    assert len(partition(toy([20, 20], clients=4, task="regression"), "given", clients=0, seed=0)) == 4
    assert len(partition(toy([20, 20], task="regression"), "iid", clients=3, seed=0)) == 3


def test_given_names_a_client_without_rows() -> None:
    dataset = toy([5, 5], clients=2)
    object.__setattr__(dataset, "client_names", ("site0", "site1", "lonely"))
    with pytest.raises(InputError, match=r"none for client 2 \(lonely\)"):
        partition(dataset, "given", clients=0, seed=0)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("sorted", {}, "iid, label_ratio, classes_per_client, dirichlet, given, got 'sorted'"),
        ("iid", {"clients": 0}, "at least 1, got 0"),
        ("iid", {"clients": None}, "at least 1"),
        ("iid", {"clients": 999}, "at most 90 clients"),
        ("iid", {"rows_per_client": 31}, r"3 clients x 31 rows = 93 training rows, got 90 in toy; take fewer"),
        ("iid", {"rows_per_client": -1}, "0 or more, got -1"),
        ("iid", {"seed": -1}, "seed of 0 or more"),
        ("label_ratio", {}, "two labels for partition 'label_ratio', got 3"),
        ("label_ratio", {"ratio": 1.5}, "from 0 to 1, got 1.5"),
        ("classes_per_client", {"classes": 4}, "from 1 to 3"),
        ("classes_per_client", {"classes": 0}, "at least 1, got 0"),
        ("classes_per_client", {"rows_per_client": 2}, "at least partition.classes = 3, got 2"),
        ("classes_per_client", {"deal": "fair"}, "'balanced' or 'random', got 'fair'"),
        ("dirichlet", {"concentration": 0.0}, "above 0, got 0.0"),
        ("given", {}, "client column for partition 'given', got none in toy"),
    ],
)
def test_errors(kind: str, options: dict[str, Any], message: str) -> None:
    wish: dict[str, Any] = {"clients": 3, "rows_per_client": 0, "seed": 0, **options}
    with pytest.raises(InputError, match=message) as caught:
        partition(toy([30, 30, 30]), kind, **wish)
    assert "\n" not in str(caught.value)


def test_more_errors() -> None:
    with pytest.raises(InputError, match="'iid' or 'given' for the regression set"):
        partition(toy([9, 9], task="regression"), "dirichlet", clients=2, seed=0)
    with pytest.raises(InputError, match=r"expected 95 training rows of class 0 \(label0\), got 60 in toy"):
        partition(toy([60, 400]), "label_ratio", clients=3, rows_per_client=50, seed=0)
    with pytest.raises(InputError, match="0 or 4, as toy names 4 clients, got 5"):
        partition(toy([9, 9], clients=4), "given", clients=5, seed=0)
    with pytest.raises(InputError, match="expected 10 rows for each client, got 5 for 'site0'"):
        partition(toy([9, 9], clients=4), "given", clients=0, rows_per_client=10, seed=0)


def test_global_generator_is_untouched() -> None:
    before = str(np.random.get_state())  # noqa: NPY002
    partition(data.load("digits"), "iid", clients=3, seed=0)
    assert before == str(np.random.get_state())  # noqa: NPY002
