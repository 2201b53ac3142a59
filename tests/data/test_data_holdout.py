"""The rows a client holds out: of every label, fixed by its own rows, never all and never none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstein.data.holdout import split_client, split_of


@given(st.lists(st.integers(0, 4), min_size=2, max_size=80), st.floats(0.001, 0.999))
def test_both_parts_have_rows_and_together_they_are_all(labels, fraction):
    y = np.array(labels, np.int32)
    kept, held = split_of(y, fraction)
    assert len(kept) >= 1
    assert len(held) == min(max(1, round(fraction * len(y))), len(y) - 1)
    assert sorted([*kept, *held]) == list(range(len(y)))


def test_every_label_gives_its_share():
    y = np.repeat(np.arange(3, dtype=np.int32), (100, 50, 10))
    _, held = split_of(y, 0.2)
    assert np.bincount(y[held]).tolist() == [20, 10, 2]


def test_targets_of_a_regression_are_no_strata():
    y = np.linspace(0, 1, 50).astype(np.float32)
    _, held = split_of(y, 0.2)
    assert len(held) == 10
    assert np.array_equal(held, split_of(y[::-1].copy(), 0.2)[1]), "the row numbers do not depend on the targets"


def test_a_single_row_is_trained_on():
    x, y = np.ones((1, 3), np.float32), np.array([1], np.int32)
    share = split_client(x, y, 0.5)
    assert (len(share.x), len(share.y), len(share.held_x), len(share.held_y)) == (1, 1, 0, 0)
    assert share.held_x.shape == (0, 3)


def test_without_a_fraction_nothing_is_held_out():
    x, y = np.arange(12.0).reshape(6, 2), np.zeros(6, np.int32)
    share = split_client(x, y, None)
    assert np.array_equal(share.x, x)
    assert len(share.held_x) == 0


def test_rows_go_with_their_labels():
    x = np.arange(40, dtype=np.float32)[:, None]
    share = split_client(x, np.arange(40, dtype=np.int32) % 2, 0.25)
    for rows, labels in ((share.x, share.y), (share.held_x, share.held_y)):
        assert np.array_equal(rows[:, 0] % 2, labels)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_split_is_the_same_whatever_width_labels_have(dtype):
    y = np.tile(np.arange(4), 10).astype(dtype)
    assert split_of(y, 0.3)[1].tolist() == split_of(y.astype(np.int16), 0.3)[1].tolist()
