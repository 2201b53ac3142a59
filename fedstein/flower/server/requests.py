"""Requests to clients over a network: deadlines, repetitions, and checks of what comes back.

A request that gets no reply is sent again (``on_missing = "wait"``) or given up (``"proceed"``). A repeated request
uses the same random numbers, so the reply is the same. Every request names the receipt (the digest) of the update that
the server accepted last from that client. From this receipt a client knows whether its last update was accepted, and
keeps or drops its new site. No separate message is needed for this.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fedstein.errors import FedsteinError
from fedstein.federation.channel import size_of
from fedstein.federation.engine import FlowerEngineSettings
from fedstein.flower.messages import (
    FORMAT,
    HELD,
    NEEDS_HELD,
    NEEDS_SETUP,
    OK,
    OUT_OF_SYNC,
    REFUSED,
    RESTORE,
    SECURE,
    SETUP,
    Envelope,
    Head,
    InvalidMessage,
    Shapes,
    check_arrays,
    check_reply,
    digest,
)
from fedstein.flower.server.events import Events
from fedstein.flower.server.membership import Membership
from fedstein.flower.server.pace import Pace, waiting_text
from fedstein.flower.server.pending import Exchange, Outcome, Pending, alike
from fedstein.flower.server.transport import DeliveryFailure, Transport
from fedstein.inference.methods.base import Arrays

LOOKS = (0.05, 0.5)  # seconds between two checks for replies, at first and at most; every check costs the link time
MOST_DOUBLINGS = 4  # how often the timeout of a repeated request is doubled at most
FOREVER = 30 * 86400.0
SAY_AFTER = 30.0  # seconds after which the log says for whom the server waits; then again whenever the time has doubled
BACK_OFF = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before a request that failed is sent again


class Requests:
    """Requests to clients, whose nodes may disconnect, restart and return at any time."""

    def __init__(
        self,
        transport: Transport,
        membership: Membership,
        settings: FlowerEngineSettings,
        run: str,
        config: str,
        events: Events,
    ):
        """
        Args:
            transport: The connection to the nodes.
            membership: Which node is which client.
            settings: Timeouts, and what to do about clients that do not answer.
            run: The id of the run.
            config: The config of the run as TOML. Every request contains it.
            events: The log.
        """
        self.transport, self.membership, self.settings, self.run, self.config = (
            transport,
            membership,
            settings,
            run,
            config,
        )
        self.events = events
        self.pace = Pace()
        self.setup: Arrays = {}
        self.setup_receipt = ""
        self.set_up: set[int] = set()  # clients that were sent the set-up arrays
        self.receipts: dict[int, tuple[int, str]] = {}
        self.sites: Mapping[int, Mapping[str, Any]] = {}  # for clients that have lost their sites
        self.restorable = False

    @property
    def waits(self) -> bool:
        """Whether clients that do not answer are asked again until they do."""
        return self.settings.on_missing == "wait"

    def use_setup(self, arrays: Arrays, known: bool) -> None:
        """Set the arrays that every client gets once and then keeps.

        Args:
            arrays: The arrays, by name.
            known: Whether clients got them already, before the run was resumed.
        """
        self.setup, self.setup_receipt = arrays, digest(arrays)
        self.set_up = set(range(self.membership.size)) if known else set()

    def request(self, *args: Any, **kwargs: Any) -> Outcome:
        """Send one request to several clients, and collect their replies. Repeat it as ``engine.on_missing`` says.

        Args:
            args: The arguments of ``Exchange``.
            kwargs: The keyword arguments of ``Exchange``.

        Returns:
            Every client's reply, or the reason why there is none.

        Raises:
            FedsteinError: No client answered for ``engine.patience`` seconds.
        """
        return self.exchange(Exchange(*args, **kwargs))[0]

    def exchange(self, *parts: Exchange) -> list[Outcome]:
        """Send several requests at once, each to its own clients, as ``request`` sends one.

        Args:
            parts: The requests. ``asking.json`` shows all their clients under the kind of the first request.

        Returns:
            For each request every client's reply, or the reason why there is none.

        Raises:
            FedsteinError: No client answered for ``engine.patience`` seconds.
        """
        began = progress = told = time.monotonic()
        kind, number = parts[0].kind, parts[0].number
        self.events.asking(kind, number, [client for part in parts for client in part.waiting], begin=True)
        while under_way := [part for part in parts if part.waiting]:
            waiting = {client: entry for part in under_way for client, entry in part.waiting.items()}
            self.events.asking(kind, number, waiting)
            self.membership.refresh()
            for part in under_way:
                self._send_due(part)
            if self._collect(under_way):
                progress = time.monotonic()
                continue
            now = time.monotonic()
            for part in under_way:
                if self._enough(part, now - began):
                    part.close()
            if not any(part.waiting for part in under_way):
                break
            if self.settings.patience and now - progress > self.settings.patience:
                self._give_up(kind, number, list(waiting.values()))
            if now - told > max(SAY_AFTER, told - began):
                told = now
                reason = waiting_text(list(waiting.values()), self._name, now)
                size = max(part.size for part in under_way)
                self.events.note("waiting", number=number, kind=kind, bytes=size, reason=reason)
            self.transport.wait(min(LOOKS[0] + (now - began) / 10, LOOKS[1]))
        self.events.asking(kind, number, ())
        for part in parts:
            for client, reason in part.outcome.missing.items():
                self.note("missing", part.number, client, kind=part.kind, reason=reason)
        return [part.outcome for part in parts]

    def summands(self, kind: str, clients: Sequence[int], arrays: Arrays, expected: Shapes) -> dict[int, Arrays]:
        """Ask clients for summands before round 1. The server uses only their sum.

        Args:
            kind: ``"scale"`` or ``"sums"``.
            clients: The clients to ask.
            arrays: The arrays that each of them gets.
            expected: The names, shapes and dtypes of a reply.

        Returns:
            The replies by client, in the order of ``clients``.

        Raises:
            FedsteinError: No client answered.
        """
        limit = self.settings.report_timeout
        found = self.request(kind, 0, clients, arrays, expected, limit, need_one=True)
        if not found.replies:
            raise FedsteinError(f"no client answered the request for {kind}: {found.missing or found.rejected}")
        sent = {client: found.replies[client].arrays for client in clients if client in found.replies}
        down, up = size_of(arrays) * len(clients), sum(size_of(each) for each in sent.values())
        self.events.note("sums", kind=kind, clients=len(sent), bytes_down=down, bytes_up=up)
        return sent

    def note(self, event: str, number: int, client: int, **more: Any) -> None:
        """Log something that happened to a client in a round."""
        self.events.note(event, number=number, client=client, name=self._name(client), **more)

    def _name(self, client: int) -> str:
        return self.membership.infos[client].name

    def _absent(self, entry: Pending) -> bool:
        """Whether no reply can come: the client's node is not connected, and nothing was sent to it before."""
        if entry.tickets or entry.client in self.membership.where:
            return False
        entry.reason = "not connected"
        return True

    def _enough(self, part: Exchange, seconds: float) -> bool:
        """Whether the round goes on without the clients that have not answered after this many seconds."""
        if self.waits or (part.need_one and not part.outcome.replies):
            return False
        limit = max(self.pace.timeout(client, part.size, part.timeout) for client in part.waiting)
        return seconds > limit or all(self._absent(entry) for entry in part.waiting.values())

    def _due(self, entry: Pending, now: float, part: Exchange) -> bool:
        node = self.membership.where.get(entry.client)
        if node is None or now < entry.not_before:
            return False
        longer = self.pace.timeout(entry.client, part.size, part.timeout) * 2 ** min(
            max(entry.taken - 1, 0), MOST_DOUBLINGS
        )  # repeating a request often would only slow down a node that is computing
        return entry.node != node or (self.waits and now - entry.sent > longer)

    def _send_due(self, part: Exchange) -> None:
        """Send a request to the clients that were not asked yet, and again to those that have taken too long."""
        now = time.monotonic()
        due = [entry for entry in part.waiting.values() if self._due(entry, now, part)]
        for entry in due:
            entry.setup |= bool(self.setup) and entry.client not in self.set_up
        for group in alike(due, apart=part.own is not None):
            self._send(part, group)

    def _send(self, part: Exchange, group: Sequence[Pending]) -> None:
        first, number = group[0], part.number
        sent = {**part.arrays, **part.own[first.client]} if part.own is not None else part.arrays
        if first.whole:
            sent = {**{HELD + name: array for name, array in part.cached.items()}, **sent}
        if first.setup:
            sent = {**sent, **{SETUP + name: array for name, array in self.setup.items()}}
            self.set_up |= {entry.client for entry in group}
        if first.restore:
            sent = {**sent, **{RESTORE + name: array for name, array in self.sites[first.client].items()}}
        envelopes: list[tuple[int, Head]] = []
        for entry in group:
            done, receipt = self.receipts.get(entry.client, (0, ""))
            head: Head = {
                "format": FORMAT,
                "run": self.run,
                "kind": part.kind,
                "round": number,
                "client": entry.client,
                "attempt": entry.attempts,
                "accepted": receipt,
                "accepted_round": done,
                "setup": self.setup_receipt,
                "held": "" if first.whole else part.cached_receipt,
                "config": self.config,
                **part.extra,
            }
            entry.node = self.membership.where[entry.client]
            envelopes.append((entry.node, head))
        began = time.monotonic()
        tickets = self.transport.send(envelopes, sent, self._lifetime(part.timeout))
        size, now = size_of(sent), time.monotonic()
        self.pace.note([entry.client for entry in group], size, now - began)
        for entry, ticket, (_, head) in zip(group, tickets, envelopes, strict=True):
            if entry.attempts:
                self.note("asked again", number, entry.client, kind=part.kind, bytes=size)
            elif first.setup:
                self.note("set up", number, entry.client, bytes=size_of(self.setup))
            entry.sent, entry.attempts = now, entry.attempts + 1
            if ticket:
                entry.taken, entry.size = entry.taken + 1, size
                entry.tickets[ticket] = Envelope(head, {})
            else:
                self._retry(entry, "the link did not take the message")

    def _lifetime(self, timeout: float) -> float:
        """The seconds for which the link keeps a request and its reply: as long as the server may use the reply."""
        return max(timeout, self.settings.patience or FOREVER) if self.waits else timeout

    def _retry(self, entry: Pending, reason: str) -> None:
        pause = BACK_OFF[min(max(entry.attempts - 1, 0), len(BACK_OFF) - 1)]
        entry.reason, entry.node, entry.not_before = reason, None, time.monotonic() + pause

    def _collect(self, parts: Sequence[Exchange]) -> bool:
        """Handle the replies that have come, and return whether there were any."""
        tickets = {ticket: (part, e) for part in parts for e in part.waiting.values() for ticket in e.tickets}
        replies = self.transport.collect(list(tickets)) if tickets else {}
        for ticket, reply in replies.items():
            part, entry = tickets[ticket]
            request = entry.tickets.pop(ticket)
            if entry.client not in part.waiting:
                continue  # another reply to this request has been used already
            if isinstance(reply, DeliveryFailure) and reply.lost:
                self._lost(part, entry, reply.reason, by_link=reply.link)
                continue
            try:
                if isinstance(reply, DeliveryFailure):
                    raise InvalidMessage(reply.reason)
                check_reply(request, reply)
                if reply.head["status"] != OK:
                    self._send_again(part, entry, reply)
                    continue
                check_arrays(reply.arrays, part.expected, partial(part.check, entry.client) if part.check else None)
            except InvalidMessage as error:
                part.outcome.rejected[entry.client] = str(error)
                del part.waiting[entry.client]
                self.note("rejected", part.number, entry.client, kind=part.kind, reason=str(error))
                continue
            part.outcome.replies[entry.client] = reply
            self.pace.note([entry.client], entry.size + size_of(reply.arrays), time.monotonic() - entry.sent)
            del part.waiting[entry.client]
        return bool(replies)

    def _lost(self, part: Exchange, entry: Pending, reason: str, by_link: bool = False) -> None:
        """Handle a reply that will not come: ask again, or count the client as missing.

        If the link lost the message, the client is asked again in any case, because it may be connected.
        """
        self._log_failure(part.number, entry, "failed", reason)
        if self.waits or by_link:
            self._retry(entry, reason)
        else:
            part.outcome.missing[entry.client] = reason
            del part.waiting[entry.client]

    def _send_again(self, part: Exchange, entry: Pending, reply: Envelope) -> None:
        """Prepare to send the arrays that a node says it lacks. If it cannot take part, write the reason to the log."""
        status, reason = reply.head["status"], str(reply.head.get("reason", ""))[:500]
        if status == NEEDS_SETUP and self.setup and not entry.setup:
            entry.setup = True
        elif status == NEEDS_HELD and not entry.whole:
            entry.whole = True
        elif status == OUT_OF_SYNC and not entry.restore and self.restorable and entry.client in self.sites:
            entry.restore = True
            self.note("site sent back", part.number, entry.client)
        else:
            if status == OUT_OF_SYNC:
                reason += "; the server does not have this client's site to give back: restore its state-dir"
            if part.kind == SECURE and status == REFUSED:  # final: the sum goes on without it or fails
                self._log_failure(part.number, entry, "failed", f"{status}: {reason}")
                part.outcome.missing[entry.client] = reason
                del part.waiting[entry.client]
                return
            self._lost(part, entry, f"{status}: {reason}")
            return
        entry.node, entry.not_before = None, 0.0

    def _log_failure(self, number: int, entry: Pending, event: str, reason: str) -> None:
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
