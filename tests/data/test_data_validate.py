"""The check every loader passes through, and the fixed split."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstein.data.dataset import Dataset, fixed_split, scaled, standardisation, validate
from fedstein.errors import InputError


def sound() -> Dataset:
    return Dataset(
        name="toy",
        task="classification",
        train_x=np.zeros((4, 2), np.float32),
        train_y=np.array([0, 1, 0, 1], np.int32),
        test_x=np.zeros((2, 2), np.float32),
        test_y=np.array([0, 1], np.int32),
        classes=2,
        feature_names=("a", "b"),
        mean=np.zeros(2),
        scale=np.ones(2),
        label_names=("no", "yes"),
    )


def with_value(value: float) -> np.ndarray:
    x = np.zeros((4, 2), np.float32)
    x[2, 1] = value
    return x


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_x": with_value(np.nan)}, "got nan in column 'b', training row 2"),
        ({"test_x": with_value(np.inf), "test_y": np.zeros(4, np.int32)}, "got inf in column 'b', test row 2"),
        ({"train_y": np.array([0, 1, 2, 1], np.int32)}, "labels from 0 to 1"),
        ({"train_y": np.array([0, 1, -1, 1], np.int32)}, "labels from 0 to 1"),
        ({"train_y": np.zeros(3, np.int32)}, r"got \(4, 2\) and \(3,\)"),
        ({"feature_names": ("a",)}, "shape"),
        ({"test_x": np.zeros((0, 2), np.float32), "test_y": np.zeros(0, np.int32)}, "test row"),
        ({"classes": 1, "label_names": ("no",)}, "at least two labels"),
        ({"task": "ranking"}, "got 'ranking'"),
        ({"scale": np.array([1.0, 0.0])}, "scales above zero"),
        ({"train_x": np.zeros((4, 2), np.int64)}, "floating-point"),
        ({"client_names": ("p",), "client_of_row": np.array([0, 0, 1, 0])}, "client"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        validate(replace(sound(), **change))


def test_sound_data_passes_unchanged() -> None:
    dataset = sound()
    assert validate(dataset) is dataset


def test_standardisation_leaves_binary_and_constant_columns_sane() -> None:
    raw = np.array([[0, 0.1, 1.0], [1, 0.1, 3.0], [1, 0.1, 5.0]])
    mean, scale = standardisation(raw)
    assert mean.tolist() == [0, 0.1, 3.0]
    assert scale[:2].tolist() == [1, 1]
    np.testing.assert_allclose(scaled(raw, mean, scale)[:, 1], 0)
    np.testing.assert_allclose(scaled(raw, mean, scale)[:, 2].std(), 1, rtol=1e-6)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=200), st.floats(0.05, 0.95))
def test_fixed_split_is_a_partition_of_the_right_size(strata: list[int], fraction: float) -> None:
    train, test = fixed_split(np.array(strata), fraction)
    assert sorted([*train, *test]) == list(range(len(strata)))
    assert len(test) == max(1, round(fraction * len(strata)))


def test_fixed_split_takes_every_stratum_in_proportion() -> None:
    strata = np.repeat([0, 1, 2], [100, 40, 10])
    _, test = fixed_split(strata, 0.2)
    assert np.bincount(strata[test]).tolist() == [20, 8, 2]
    assert not np.array_equal(test[:20], np.arange(20))
