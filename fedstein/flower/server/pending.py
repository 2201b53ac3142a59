"""The state of one request to several clients while it is in progress, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedstein.federation.channel import size_of
from fedstein.flower.messages import Envelope, Head, Shapes, bytes_of
from fedstein.inference.sites.base import Arrays

# A client, its arrays of the right shapes -> what is wrong with them; an empty text if nothing is.
ClientCheck = Callable[[int, Arrays], str]


class Outcome(NamedTuple):
    """The outcome of one request to several clients."""

    replies: dict[int, Envelope]
    missing: dict[int, str]
    rejected: dict[int, str]


class Pending:
    """One client's part of a request that is in progress."""

    def __init__(self, client: int):
        self.client = client
        self.tickets: dict[str, Envelope] = {}
        self.node: int | None = None
        self.sent = -1e9
        self.size = 0  # bytes of the last message to the client
        self.attempts = 0
        self.taken = 0  # messages of this request that the link has accepted
        self.not_before = 0.0
        self.reason = "no reply"
        self.setup = False  # whether the set-up arrays of the run must be sent too
        self.whole = False  # whether arrays that the client received before and lost must be sent again
        self.restore = False  # whether its site must be sent back
        self.told: set[str] = set()  # problems that the log already has


class Exchange:
    """One request to several clients: who has not answered yet, and the outcome for the others."""

    def __init__(
        self,
        kind: str,
        number: int,
        clients: Sequence[int],
        arrays: Arrays,
        expected: Shapes,
        timeout: float,
        *,
        cached: Arrays | None = None,
        cached_receipt: str = "",
        need_one: bool = False,
        check: ClientCheck | None = None,
        own: Mapping[int, Arrays] | None = None,
        extra: Head | None = None,
    ):
        """
        Args:
            kind: The kind of the request; a node has a handler for each kind.
            number: The round, 0 before round 1.
            clients: The clients to ask.
            arrays: The encoded arrays that each of them gets.
            expected: The names, shapes and dtypes that a reply must have.
            timeout: Seconds after which a request is sent again, or given up. It is longer for a client with a slow
                connection (``pace``).
            cached: Arrays that the clients have already; they are sent only to a client that has lost them.
            cached_receipt: The digest of ``cached``, by which clients find these arrays.
            need_one: Whether to wait for at least one reply although ``on_missing`` is ``"proceed"``.
            check: Returns what is wrong with a reply of the right form. Without it, every number must be finite.
            own: Arrays that only one client gets, by client, in addition to those for all.
            extra: Further entries of the head.
        """
        self.kind, self.number, self.arrays, self.expected, self.timeout = kind, number, arrays, expected, timeout
        self.cached, self.cached_receipt, self.need_one = cached or {}, cached_receipt, need_one
        self.check, self.own, self.extra = check, own, extra or {}
        self.waiting = {client: Pending(client) for client in clients}
        self.outcome = Outcome({}, {}, {})
        self.size = size_of(arrays) + sum(bytes_of(*form) for form in expected.values())

    def close(self) -> None:
        """Count clients that have not answered as missing."""
        self.outcome.missing.update({client: entry.reason for client, entry in self.waiting.items()})
        self.waiting.clear()


def alike(entries: Sequence[Pending], apart: bool = False) -> list[list[Pending]]:
    """Group clients that get the same arrays. With ``apart``, or if its site is sent back, a client is alone."""
    groups: dict[Any, list[Pending]] = {}
    for entry in entries:
        groups.setdefault((entry.setup, entry.whole, entry.client if entry.restore or apart else -1), []).append(entry)
    return list(groups.values())
