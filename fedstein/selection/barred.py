"""A scheme for a federation with barred clients: the scheme sees only the remaining clients."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedstein.inference.sites.base import Arrays
from fedstein.selection.base import Draw, Memory, Scheme


def without(scheme: Scheme, barred: Collection[int]) -> Scheme:
    """Wrap a scheme so that it sees the remaining clients as 0, 1, ...; all other code uses the clients' ids."""
    gone = sorted(barred)
    if not gone:
        return scheme

    def place(client: int) -> int:
        return client - sum(other < client for other in gone)

    def first(seed: int, clients: int) -> Memory:
        return scheme.first(seed, clients - len(gone))

    def draw(memory: Memory, candidates: Sequence[int], *rest: Any) -> Draw:
        ids = {place(client): client for client in candidates}
        drawn = scheme.draw(memory, list(ids), *rest)
        return drawn._replace(order=[ids[number] for number in drawn.order])

    def after(memory: Memory, selected: Sequence[int], seed: int, clients: int) -> Memory:
        return scheme.after(memory, [place(client) for client in selected], seed, clients - len(gone))

    if scheme.learn is None:
        return scheme._replace(first=first, draw=draw, after=after)
    learned = scheme.learn

    def learn(memory: Memory, reports: Mapping[int, Arrays]) -> Memory:
        return learned(memory, {place(client): report for client, report in reports.items()})

    return scheme._replace(first=first, draw=draw, after=after, learn=learn)
