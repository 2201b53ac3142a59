"""What is under way of one request to several clients, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fedstein.flower.messages import Envelope


class Outcome(NamedTuple):
    """What came of one request to several clients."""

    replies: dict[int, Envelope]
    missing: dict[int, str]
    rejected: dict[int, str]


class Pending:
    """One client's part of a request that is under way."""

    def __init__(self, client: int):
        self.client = client
        self.tickets: dict[str, Envelope] = {}
        self.node: int | None = None
        self.sent = -1e9
        self.size = 0  # bytes of the last message to it
        self.attempts = 0
        self.taken = 0  # attempts whose message the link has taken
        self.not_before = 0.0
        self.reason = "no reply"
        self.setup = False  # whether the set-up arrays of the run go with it
        self.whole = False  # whether arrays that the client was thought to hold must be sent again
        self.restore = False  # whether its site must be sent back
        self.told: set[str] = set()  # problems that are in the log already


def alike(entries: Sequence[Pending], apart: bool = False) -> list[list[Pending]]:
    """Group clients that get the same arrays. ``apart``, or where its site is sent back, each is a group alone."""
    groups: dict[Any, list[Pending]] = {}
    for entry in entries:
        groups.setdefault((entry.setup, entry.whole, entry.client if entry.restore or apart else -1), []).append(entry)
    return list(groups.values())
