"""Labels that are wrong on purpose."""

from __future__ import annotations

import numpy as np
import pytest

from fedstein import data
from fedstein.data.label_noise import with_wrong_labels
from fedstein.errors import InputError

SHARDS = [np.arange(0, 50), np.arange(50, 150), np.arange(150, 151)]


@pytest.fixture(scope="module")
def digits() -> data.Dataset:
    return data.load("digits")


def changed(dataset: data.Dataset, other: data.Dataset) -> list[int]:
    return [int((dataset.train_y[rows] != other.train_y[rows]).sum()) for rows in SHARDS]


def test_the_share_of_each_client_is_replaced_and_no_label_by_itself(digits: data.Dataset) -> None:
    noisy = with_wrong_labels(digits, SHARDS, 0.2, None, 0)
    assert changed(digits, noisy) == [10, 20, 0]  # a single row: 0.2 rounds to none
    assert np.array_equal(noisy.train_y[151:], digits.train_y[151:])
    assert np.array_equal(noisy.test_y, digits.test_y)
    assert set(np.unique(noisy.train_y)) == set(range(10))
    assert changed(digits, with_wrong_labels(digits, SHARDS, 1.0, [1], 0)) == [0, 100, 0]


def test_wrong_labels_follow_the_seed_and_spread_over_the_other_classes(digits: data.Dataset) -> None:
    first, again, other = (with_wrong_labels(digits, SHARDS, 1.0, None, seed).train_y for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    everything = [np.arange(len(digits.train_y))]
    moves = (with_wrong_labels(digits, everything, 1.0, None, 0).train_y - digits.train_y) % 10
    counts = np.bincount(moves, minlength=10)
    expected = len(moves) / 9
    assert counts[0] == 0
    assert np.all(np.abs(counts[1:] - expected) < 5 * np.sqrt(expected))


def test_without_a_share_the_dataset_stays_as_it_is(digits: data.Dataset) -> None:
    assert with_wrong_labels(digits, SHARDS, 0.0, None, 0) is digits


def test_what_cannot_be_is_refused(digits: data.Dataset) -> None:
    with pytest.raises(InputError, match="regression has none"):
        with_wrong_labels(data.load("diabetes"), SHARDS, 0.1, None, 0)
    with pytest.raises(InputError, match=r"flip_clients = \[3\]: expected ids from 0 to 2"):
        with_wrong_labels(digits, SHARDS, 0.1, [3], 0)
