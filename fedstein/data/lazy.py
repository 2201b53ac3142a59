"""Sequences that make their items on access, so that the rows of ten thousand clients need not be in memory at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class Lazy(Sequence[Item], Generic[Item]):
    """The sequence ``make(0)``, ..., ``make(count - 1)``. It makes an item again on each access."""

    def __init__(self, count: int, make: Callable[[int], Item]):
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return self._make(index % self._count)


class Recent(Lazy[Item]):
    """A lazy sequence that keeps the most recently used items within a budget.

    Args:
        count: The number of items.
        make: Makes the item of an index.
        size: Returns the size of an item, in the unit of the budget.
        budget: The largest total size of the kept items; 0 keeps all items.
    """

    def __init__(self, count: int, make: Callable[[int], Item], size: Callable[[Item], int], budget: int):
        super().__init__(count, self._recall)
        self._fresh, self._size, self._budget = make, size, budget
        self._kept: OrderedDict[int, Item] = OrderedDict()
        self._total = 0

    def _recall(self, index: int) -> Item:
        if index in self._kept:
            self._kept.move_to_end(index)
            return self._kept[index]
        item = self._fresh(index)
        self._kept[index] = item
        self._total += self._size(item)
        while self._budget and self._total > self._budget and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._total -= self._size(oldest)
        return item
