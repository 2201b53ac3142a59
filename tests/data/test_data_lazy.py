"""Sequences that are made when they are asked for."""

from __future__ import annotations

import pytest

from fedstein.data.lazy import Lazy, Recent


def test_a_lazy_sequence_is_a_sequence_and_keeps_nothing():
    made: list[int] = []

    def make(index: int) -> int:
        made.append(index)
        return index * index

    squares = Lazy(4, make)
    assert made == []
    assert len(squares) == 4
    assert list(squares) == [0, 1, 4, 9]
    assert squares[-1] == 9
    assert squares[1:3] == [1, 4]
    assert made == [0, 1, 2, 3, 3, 1, 2]
    for outside in (4, -5):
        with pytest.raises(IndexError):
            squares[outside]


@pytest.mark.parametrize(("budget", "again"), [(0, []), (30, [0]), (100, [])])
def test_recent_items_are_kept_within_the_budget(budget: int, again: list[int]):
    made: list[int] = []

    def make(index: int) -> bytes:
        made.append(index)
        return bytes(10)

    items = Recent(4, make, len, budget)
    for index in (0, 1, 2, 1, 3):  # with room for three the first is the one that goes
        items[index]
    assert made == [0, 1, 2, 3]
    made.clear()
    items[0]
    assert made == again


def test_an_item_that_is_larger_than_the_budget_is_still_there_once():
    items = Recent(2, lambda index: bytes(50), len, 10)
    assert items[0] is items[0]
    items[1]
    assert items[1] is items[1]
