"""Requests to clients over a network: deadlines, retries with the same keys, replies that are checked.

A request that comes to nothing is asked again (``on_missing = "wait"``) or given up (``"proceed"``). Every request
names the receipt of the update that the server accepted last from that client, so a client that trained for nothing
drops that, and one whose update was accepted keeps it, without a message of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedstein.algorithms.base import Arrays
from fedstein.engines.base import size_of
from fedstein.engines.flower.events import Events
from fedstein.engines.flower.letters import (
    FORMAT,
    NEEDS_HELD,
    NEEDS_SETUP,
    OK,
    OUT_OF_SYNC,
    RESTORE,
    SETUP,
    BadLetter,
    Check,
    Head,
    Letter,
    Shapes,
    check_arrays,
    check_reply,
    digest,
)
from fedstein.engines.flower.post import Post, Trouble
from fedstein.engines.flower.roster import Roster
from fedstein.errors import FedsteinError
from fedstein.runs.config import EngineSection

LOOKS = (0.05, 0.5)  # seconds between two looks for replies, at first and at most; each is work for the link
MOST_DOUBLINGS = 4  # of a timeout after which a request is sent once more
FOREVER = 30 * 86400.0
BACK_OFF = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before a request that failed is sent again


class Outcome(NamedTuple):
    """What came of one request to several clients."""

    replies: dict[int, Letter]
    missing: dict[int, str]
    rejected: dict[int, str]


class Pending:
    """One client's part of a request that is under way."""

    def __init__(self, client: int):
        self.client = client
        self.tickets: dict[str, Letter] = {}
        self.node: int | None = None
        self.sent = -1e9
        self.attempts = 0
        self.not_before = 0.0
        self.reason = "no reply"
        self.setup = False  # whether the set-up arrays of the run go with it
        self.whole = False  # whether arrays that it was thought to hold must be sent again
        self.restore = False  # whether its site must be sent back
        self.told: set[str] = set()  # problems that are in the log already


class Office:
    """Requests to clients, by name and with deadlines, whatever happens to their nodes meanwhile."""

    def __init__(self, post: Post, roster: Roster, settings: EngineSection, run: str, config: str, events: Events):
        self.post, self.roster, self.settings, self.run, self.config = post, roster, settings, run, config
        self.events = events
        self.setup: Arrays = {}
        self.setup_receipt = ""
        self.set_up: set[int] = set()  # clients that were sent the set-up arrays
        self.receipts: dict[int, tuple[int, str]] = {}
        self.sites: dict[int, Mapping[str, Any]] = {}  # what a client that lost its site can get back
        self.restorable = False

    @property
    def waits(self) -> bool:
        return self.settings.on_missing == "wait"

    def use_setup(self, arrays: Arrays, known: bool) -> None:
        """Arrays that every client needs once; ``known`` says that they have got them before."""
        self.setup, self.setup_receipt = arrays, digest(arrays)
        self.set_up = set(range(self.roster.size)) if known else set()

    def request(
        self,
        kind: str,
        number: int,
        clients: Sequence[int],
        arrays: Arrays,
        expected: Shapes,
        timeout: float,
        *,
        held: Arrays | None = None,
        held_receipt: str = "",
        need_one: bool = False,
        check: Check | None = None,
    ) -> Outcome:
        """Send, collect, send again; ends when all have answered, or when the deadline lets it."""
        waiting = {client: Pending(client) for client in clients}
        outcome = Outcome({}, {}, {})
        began = progress = time.monotonic()
        while waiting:
            self.roster.look()
            now = time.monotonic()
            due = [entry for entry in waiting.values() if self._due(entry, now, timeout)]
            for entry in due:
                entry.setup |= bool(self.setup) and entry.client not in self.set_up
            for group in _alike(due):
                self._send(kind, number, group, arrays, held or {}, held_receipt, timeout, now)
            if self._collect(kind, number, waiting, expected, check, outcome):
                progress = time.monotonic()
                continue
            now = time.monotonic()
            enough = not self.waits and (bool(outcome.replies) or not need_one)
            if enough and (now - began > timeout or all(self._absent(entry) for entry in waiting.values())):
                break
            if self.settings.patience and now - progress > self.settings.patience:
                self._give_up(kind, number, list(waiting.values()))
            self.post.rest(min(LOOKS[0] + (now - began) / 10, LOOKS[1]))
        for client, entry in waiting.items():
            outcome.missing[client] = entry.reason
        for client, reason in outcome.missing.items():
            self.note("missing", number, client, kind=kind, reason=reason)
        return outcome

    def summands(self, kind: str, clients: Sequence[int], arrays: Arrays, expected: Shapes) -> dict[int, Arrays]:
        """What the clients send before round 1, in their order; nothing but its sum is used."""
        limit = self.settings.report_timeout or 60.0
        found = self.request(kind, 0, clients, arrays, expected, limit, need_one=True)
        if not found.replies:
            raise FedsteinError(f"no client answered the request for {kind}: {found.missing or found.rejected}")
        sent = {client: found.replies[client].arrays for client in clients if client in found.replies}
        down, up = size_of(arrays) * len(clients), sum(size_of(each) for each in sent.values())
        self.events.note("sums", kind=kind, clients=len(sent), bytes_down=down, bytes_up=up)
        return sent

    def note(self, event: str, number: int, client: int, **more: Any) -> None:
        """Something that happened to a client in a round."""
        self.events.note(event, number=number, client=client, name=self._name(client), **more)

    def _name(self, client: int) -> str:
        return self.roster.infos[client].name

    def _absent(self, entry: Pending) -> bool:
        """Whether nothing can come: its node is not there and nothing was sent to it."""
        if entry.tickets or entry.client in self.roster.where:
            return False
        entry.reason = "not connected"
        return True

    def _due(self, entry: Pending, now: float, timeout: float) -> bool:
        node = self.roster.where.get(entry.client)
        if node is None or now < entry.not_before:
            return False
        longer = timeout * 2 ** min(max(entry.attempts - 1, 0), MOST_DOUBLINGS)  # a node at work only gets slower by it
        return entry.node != node or (self.waits and now - entry.sent > longer)

    def _send(
        self,
        kind: str,
        number: int,
        group: Sequence[Pending],
        arrays: Arrays,
        held: Arrays,
        held_receipt: str,
        timeout: float,
        now: float,
    ) -> None:
        first = group[0]
        sent = {**held, **arrays} if first.whole else arrays
        if first.setup:
            sent = {**sent, **{SETUP + name: array for name, array in self.setup.items()}}
            self.set_up |= {entry.client for entry in group}
        if first.restore:
            sent = {**sent, **{RESTORE + name: array for name, array in self.sites[first.client].items()}}
        letters: list[tuple[int, Head]] = []
        for entry in group:
            done, receipt = self.receipts.get(entry.client, (0, ""))
            head: Head = {
                "format": FORMAT,
                "run": self.run,
                "kind": kind,
                "round": number,
                "client": entry.client,
                "attempt": entry.attempts,
                "accepted": receipt,
                "accepted_round": done,
                "setup": self.setup_receipt,
                "held": "" if first.whole else held_receipt,
                "config": self.config,
            }
            entry.node = self.roster.where[entry.client]
            letters.append((entry.node, head))
        tickets = self.post.send(letters, sent, self._lifetime(timeout))
        size = size_of(sent)
        for entry, ticket, (_, head) in zip(group, tickets, letters, strict=True):
            if entry.attempts:
                self.note("asked again", number, entry.client, kind=kind, bytes=size)
            elif first.setup:
                self.note("set up", number, entry.client, bytes=size_of(self.setup))
            entry.sent, entry.attempts = now, entry.attempts + 1
            if ticket:
                entry.tickets[ticket] = Letter(head, {})
            else:
                self._retry(entry, "the link did not take the message")

    def _lifetime(self, timeout: float) -> float:
        """How long a reply is of use: to somebody who waits, as long as he does."""
        return max(timeout, self.settings.patience or FOREVER) if self.waits else timeout

    def _retry(self, entry: Pending, reason: str) -> None:
        pause = BACK_OFF[min(max(entry.attempts - 1, 0), len(BACK_OFF) - 1)]
        entry.reason, entry.node, entry.not_before = reason, None, time.monotonic() + pause

    def _collect(
        self,
        kind: str,
        number: int,
        waiting: dict[int, Pending],
        expected: Shapes,
        check: Check | None,
        outcome: Outcome,
    ) -> bool:
        """Take in what has come; whether anything has."""
        tickets = {ticket: entry for entry in waiting.values() for ticket in entry.tickets}
        replies = self.post.collect(list(tickets)) if tickets else {}
        for ticket, reply in replies.items():
            entry = tickets[ticket]
            request = entry.tickets.pop(ticket)
            if entry.client not in waiting:
                continue  # an earlier reply of this look was taken
            if isinstance(reply, Trouble) and reply.lost:
                self._lost(number, entry, reply.reason, waiting, outcome)
                continue
            try:
                if isinstance(reply, Trouble):
                    raise BadLetter(reply.reason)
                check_reply(request, reply)
                if reply.head["status"] != OK:
                    self._mend(kind, number, entry, reply, waiting, outcome)
                    continue
                check_arrays(reply.arrays, expected, check)
            except BadLetter as error:
                outcome.rejected[entry.client] = str(error)
                del waiting[entry.client]
                self.note("rejected", number, entry.client, kind=kind, reason=str(error))
                continue
            outcome.replies[entry.client] = reply
            del waiting[entry.client]
        return bool(replies)

    def _lost(self, number: int, entry: Pending, reason: str, waiting: dict[int, Pending], outcome: Outcome) -> None:
        self._tell(number, entry, "failed", reason)
        if self.waits:
            self._retry(entry, reason)
        else:
            outcome.missing[entry.client] = reason
            del waiting[entry.client]

    def _mend(
        self,
        kind: str,
        number: int,
        entry: Pending,
        reply: Letter,
        waiting: dict[int, Pending],
        outcome: Outcome,
    ) -> None:
        """A node that lacks something gets it; one that cannot take part is told so in the log, by name."""
        status, reason = reply.head["status"], str(reply.head.get("reason", ""))[:500]
        if status == NEEDS_SETUP and self.setup and not entry.setup:
            entry.setup = True
        elif status == NEEDS_HELD and not entry.whole:
            entry.whole = True
        elif status == OUT_OF_SYNC and not entry.restore and self.restorable and entry.client in self.sites:
            entry.restore = True
            self.note("site sent back", number, entry.client)
        else:
            if status == OUT_OF_SYNC:
                reason += "; the server does not have this client's site to give back: restore its state-dir"
            self._lost(number, entry, f"{status}: {reason}", waiting, outcome)
            return
        entry.node, entry.not_before = None, 0.0

    def _tell(self, number: int, entry: Pending, event: str, reason: str) -> None:
        brief = " ".join(reason.split())[-300:]
        if brief not in entry.told:
            entry.told.add(brief)
            self.note(event, number, entry.client, reason=brief)

    def _give_up(self, kind: str, number: int, waiting: Sequence[Pending]) -> None:
        who = ", ".join(f"{self._name(e.client)} ({e.reason})" for e in waiting[:5])
        raise FedsteinError(
            f"round {number}: nobody answered the request to {kind} for {self.settings.patience:.0f} s "
            f"(engine.patience); still missing: {who}; the rounds before it and their checkpoint are kept: start the "
            "nodes again and resume"
        )


def _alike(entries: Sequence[Pending]) -> list[list[Pending]]:
    """Clients that get the same arrays are sent to together; a site that goes back is its owner's alone."""
    groups: dict[Any, list[Pending]] = {}
    for entry in entries:
        groups.setdefault((entry.setup, entry.whole, entry.client if entry.restore else -1), []).append(entry)
    return list(groups.values())
