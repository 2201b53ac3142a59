"""The assignment of nodes to clients. Clients are identified by name, because a node's id changes at every restart.

Every new node gets a greeting (a request of the kind ``"hello"``) and answers with its name, its number of rows and
their checksum.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from fedstein.errors import FedsteinError
from fedstein.federation.engine import ClientInfo, FlowerEngineSettings
from fedstein.flower.messages import FORMAT, OK, Envelope, Head, InvalidMessage, check_reply, value
from fedstein.flower.server.events import Events
from fedstein.flower.server.transport import DeliveryFailure, Transport

LOOK_EVERY = 0.5  # seconds between two checks of which nodes are connected
UNKNOWN = -1  # the number of rows of a client in a private run, if it is not public
AGAIN = 60.0  # seconds until a node that did not fit is greeted again, because its operator may have corrected its file
AFTER_FAILURE = 5.0  # seconds until a node whose greeting failed is greeted again
KEYS = ("name", "rows", "plays", "data")  # the entries of a client's answer to a greeting
AFTER_LINK = 0.5  # seconds until a node is greeted again after the link lost the greeting or the reply


class Greeting(NamedTuple):
    """A greeting whose reply has not come yet."""

    node: int
    request: Envelope
    sent: float


class Membership:
    """The clients of a run. ``where`` maps each client that is connected now to its node."""

    def __init__(self, transport: Transport, run: str, config: str, clients: int, events: Events, ttl: float):
        """
        Args:
            transport: The connection to the nodes.
            run: The id of the run.
            config: The config of the run as TOML. Every greeting contains it, so that nodes can check whether they fit.
            clients: How many clients the run has.
            events: The log.
            ttl: Seconds for which the link keeps a greeting.
        """
        self.transport, self.run, self.config, self.size, self.events, self.ttl = (
            transport,
            run,
            config,
            clients,
            events,
            ttl,
        )
        self.where: dict[int, int] = {}
        self.infos: list[ClientInfo] = [ClientInfo(k, f"client-{k}", 0) for k in range(clients)]
        self.names: dict[str, int] = {}
        self.checksums: dict[str, str] = {}  # of each client's rows, by name
        self.settled = False  # whether clients have their ids; before that, clients are collected, to be sorted by name
        self.waiting_names: dict[str, tuple[int, Head]] = {}
        self.turned_away: dict[str, str] = {}  # why nodes do not take part, by name
        self.on_join: Callable[[], None] = lambda: None
        self._greetings: dict[str, Greeting] = {}
        self._greeted: dict[int, float] = {}
        self._looked = -1e9

    def refresh(self) -> None:
        """Greet new nodes, read the answers to greetings, and forget nodes that have disconnected."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        nodes = set(self.transport.nodes())
        for client, node in list(self.where.items()):
            if node not in nodes:
                del self.where[client]
                self._greeted.pop(node, None)
                self.events.note("left", client=client, name=self.infos[client].name)
        known = set(self.where.values()) | {greeting.node for greeting in self._greetings.values()}
        fresh = [node for node in sorted(nodes - known) if now - self._greeted.get(node, -1e9) > AGAIN]
        if fresh:
            self._greet(fresh, now)
        self._take_in(now)

    def _greet(self, nodes: list[int], now: float) -> None:
        head: Head = {"format": FORMAT, "run": self.run, "kind": "hello", "round": 0, "client": -1}
        request = Envelope({**head, "config": self.config}, {})
        for node, ticket in zip(
            nodes, self.transport.send([(n, request.head) for n in nodes], {}, self.ttl), strict=True
        ):
            self._greeted[node] = now
            if ticket:
                self._greetings[ticket] = Greeting(node, request, now)
            else:
                self._greet_after(node, AFTER_LINK)

    def _greet_after(self, node: int, seconds: float) -> None:
        self._greeted[node] = time.monotonic() - AGAIN + seconds

    def _take_in(self, now: float) -> None:
        for ticket, reply in self.transport.collect(list(self._greetings)).items() if self._greetings else ():
            greeting = self._greetings.pop(ticket, None)
            if greeting is None:
                continue
            if isinstance(reply, DeliveryFailure):
                self.events.note("no greeting", name=f"node {greeting.node}", reason=reply.reason)
                self._greet_after(greeting.node, AFTER_LINK if reply.link else AFTER_FAILURE)
                continue
            for each in introductions(reply):
                try:
                    self._admit(greeting, each)
                except FedsteinError as error:
                    who = str(each.head.get("name", f"node {greeting.node}"))[:80]
                    self.turned_away[who] = str(error)
                    self.events.note("turned away", name=who, reason=str(error))
        for ticket, greeting in list(self._greetings.items()):
            if now - greeting.sent > self.ttl:
                del self._greetings[ticket]

    def _admit(self, greeting: Greeting, reply: Envelope) -> None:
        check_reply(greeting.request, reply)
        name = value(reply.head, "name", str)
        if reply.head["status"] != OK:
            raise InvalidMessage(str(reply.head.get("reason", reply.head["status"])))
        rows, plays = value(reply.head, "rows", int), value(reply.head, "plays", int)
        checksum = value(reply.head, "data", str)
        if (rows < 1 and rows != UNKNOWN) or not -1 <= plays < self.size or not 0 < len(name) <= 200:
            raise InvalidMessage(f"says that it has {rows} rows, plays client {plays} and is called {name!r:.80}")
        if self.checksums.get(name, checksum) != checksum:
            raise InvalidMessage("its rows have changed since the run began; restore them, or start a run anew")
        if plays < 0 and name not in self.names and not self.settled:
            self.waiting_names[name] = (greeting.node, reply.head)
            return
        client = plays if plays >= 0 else self.names.get(name, self._free())
        if client is None:
            raise InvalidMessage(f"all {self.size} places are taken: partition.clients = {self.size}")
        if self.names.get(name, client) != client or (self.infos[client].rows and self.infos[client].name != name):
            raise InvalidMessage(f"client {client} is {self.infos[client].name!r} already")
        new = not self.infos[client].rows
        self.names[name], self.checksums[name] = client, checksum
        self.infos[client] = ClientInfo(client, name, rows)
        self.where[client] = greeting.node
        self.turned_away.pop(name, None)
        self.events.note("joined", client=client, name=name, rows=rows)
        if new:
            self.on_join()

    def _free(self) -> int | None:
        return next((info.id for info in self.infos if not info.rows), None)

    def count_connected(self) -> int:
        """How many clients are connected, including those that wait for an id."""
        return len(self.where) + len(self.waiting_names)

    def gather(self, seconds: float, all_of_them: bool, enough: int | None = None) -> None:
        """Wait for the nodes, then give ids to the clients that have none, in the order of their names.

        Args:
            seconds: How long to wait at most.
            all_of_them: Whether every client must be connected; otherwise one is enough.
            enough: The number of clients after which waiting ends early; by default all of them.

        Raises:
            FedsteinError: Too few clients connected in time.
        """
        began = time.monotonic()
        while self.count_connected() < (enough or self.size) and time.monotonic() - began < seconds:
            self.refresh()
            self.transport.wait(0.1)
        connected = self.count_connected()
        if connected < self.size and (all_of_them or not connected):
            go_on = "start the other nodes, or set it to 'proceed' to go on without them"
            away = "".join(f"; {name} was turned away: {reason}" for name, reason in self.turned_away.items())
            raise FedsteinError(
                f"{connected} of {self.size} clients have connected after {seconds:.0f} s (engine.start_timeout), and "
                f"engine.on_missing is 'wait'; {go_on}{away}"
                if connected
                else f"no client has connected after {seconds:.0f} s (engine.start_timeout); start the nodes and see "
                f"their logs{away}"
            )
        self.settled = True
        waiting, self.waiting_names = self.waiting_names, {}
        for name in sorted(waiting):
            node, head = waiting[name]
            request = Envelope({key: head[key] for key in ("format", "run", "kind", "round", "client")}, {})
            self._admit(Greeting(node, request, began), Envelope(head, {}))

    def memory(self) -> dict[str, Any]:
        """Return the state that a resumed run needs, as plain JSON: the clients' ids and checksums of their rows."""
        return {"names": dict(self.names), "data": dict(self.checksums)}

    def recall(self, memory: dict[str, Any]) -> None:
        """Restore the state that ``memory`` returned before a resume."""
        self.names.update({str(k): int(v) for k, v in memory.get("names", {}).items()})
        self.checksums.update({str(k): str(v) for k, v in memory.get("data", {}).items()})


def lifetime(settings: FlowerEngineSettings) -> float:
    """Seconds for which the link keeps a greeting.

    A node must import JAX and read its rows before it answers its first greeting, so this takes longer than a report.
    """
    return max(settings.report_timeout, settings.start_timeout)


def introductions(reply: Envelope) -> list[Envelope]:
    """The reply to a greeting, one for each client that the node plays.

    Args:
        reply: What a node answered.

    Returns:
        The reply itself, or one for each client if the node plays several. A list that cannot be read gives the
        reply itself, which is then turned away because it names no rows.
    """
    text = reply.head.get("several")
    if not isinstance(text, str):
        return [reply]
    try:
        found = json.loads(text)
        return [Envelope({**reply.head, **{key: each[key] for key in KEYS}}, {}) for each in found] or [reply]
    except (ValueError, TypeError, KeyError):
        return [reply]
