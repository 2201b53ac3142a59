"""Sending messages to nodes and collecting what comes back, over Flower's Grid.

Every call to Flower's Grid goes through ``RetryingGrid``. The link (Flower's SuperLink) may die at any point of an
exchange. Flower waits by itself for a link that refuses connections, but it raises in other cases, for example if the
link dies after it has taken a message and before it acknowledges the message's objects. ``RetryingGrid`` turns all of
these into one condition, "the link is away", which its callers see as "nothing yet": no message was taken, no reply has
come, and the nodes are those that were connected before. The server then asks again, and the run ends only after
``engine.patience``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

import httpx
from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import UnexpectedObjectContentError
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError, ObjectUnavailableError
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from fedstein.errors import FedsteinError
from fedstein.flower.messages import Envelope, Head, InvalidMessage
from fedstein.flower.records import arrays_content, from_record, to_record
from fedstein.flower.server.events import Events
from fedstein.inference.sites.base import Arrays

TYPES = {"train": MessageType.TRAIN, "evaluate": MessageType.EVALUATE}  # everything else is a query
PUSH_AGAIN = (0.2, 1.0, 3.0)  # seconds before the same messages are given to the link again
LINK_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)  # seconds between two checks for replies while the link is away
# Errors in place of a reply if the link has lost the message or the reply; the client may have no fault.
LOST_BY_LINK = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
# HTTP codes below 500 that ask for patience: request timeout, too early, too many requests.
BUSY_CODES = (408, 425, 429)

Found = TypeVar("Found")


class LinkAway(Exception):
    """Flower's link cannot be reached, or has lost its part of an exchange; the text says what Flower raised."""


def link_is_away(error: Exception) -> bool:
    """Whether this is an error that Flower raises when the link is away.

    Every other error has a cause that waiting would only hide: a certificate that cannot be verified, for
    example.

    Args:
        error: The exception that Flower raised.

    Returns:
        True if waiting may help.
    """
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500 or error.response.status_code in BUSY_CODES
    if isinstance(error, httpx.UnsupportedProtocol) or "certificate verify failed" in str(error).lower():
        return False
    if isinstance(error, ValueError):  # Flower: a response that is not protobuf, such as a page of a gateway's
        return isinstance(error.__cause__, DecodeError)
    return isinstance(
        error,
        (
            httpx.TransportError,  # connection refused, reset or closed, timeouts; Flower waits for most, not for all
            httpx.DecodingError,  # a compressed response that was cut
            ConnectionError,
            TimeoutError,
            ObjectPushError,  # the link has forgotten the push, or its acknowledgement was lost
            ObjectPullError,
            ObjectUnavailableError,
            UnexpectedObjectContentError,
        ),
    )


class RetryingGrid(Grid):
    """A Flower Grid that wraps another one and does not raise while the link is away."""

    def __init__(self, grid: Grid, events: Events | None = None):
        self.grid, self.events = grid, events
        self._failures: dict[str, int] = {}  # calls of each method that failed since its last success
        self._nodes: list[int] = []

    @property
    def pause(self) -> float:
        """Seconds that a caller should wait before the next call; 0 while the link answers."""
        failures = max(self._failures.values(), default=0)
        return LINK_PAUSES[min(failures, len(LINK_PAUSES)) - 1] if failures else 0.0

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are connected; while the link is away, those that were connected before."""
        with suppress(LinkAway):
            self._nodes = self._try("list nodes", lambda: list(self.grid.get_node_ids()))
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Give messages to the link. If the link is away, try again a few times with the same messages.

        The link identifies a message by its content. So it stores and delivers the message once, and takes only the
        objects that are still missing. A message that stayed incomplete would keep its node waiting for the objects
        until the link drops it after three minutes.

        Args:
            messages: The messages.

        Returns:
            The id of each message. It is empty if the link did not take the message; the caller must then make a new
            one.
        """
        given = list(messages)
        for seconds in (*PUSH_AGAIN, None):
            try:
                return self._try("push", lambda: list(self.grid.push_messages(given)))
            except LinkAway:
                if seconds is not None:
                    time.sleep(seconds)
        return [""] * len(given)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Get the replies that have come.

        The link forgets replies when it hands them over. Replies that were in transit when it died are lost. If they
        are asked for again, the link answers with an error that says so (``LOST_BY_LINK``).

        Args:
            message_ids: The ids of the messages whose replies are wanted.

        Returns:
            The replies; none while the link is away.
        """
        wanted = list(message_ids)
        try:
            return self._try("pull", lambda: list(self.grid.pull_messages(wanted)))
        except LinkAway:
            return []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and wait for their replies; for the loop of a Flower strategy.

        Args:
            messages: The messages.
            timeout: Seconds to wait.

        Returns:
            The replies that came; none if the link went away.
        """
        given = list(messages)
        try:
            return self._try("exchange", lambda: list(self.grid.send_and_receive(given, timeout=timeout)))
        except LinkAway:
            self.push_messages(given)  # so that no message stays incomplete at the link; replies are ignored
            return []

    def set_run(self, run: Any) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        return self.grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self.grid.create_message(*args, **kwargs)

    def get_nodes(self) -> Iterable[Any]:
        return self.grid.get_nodes()

    def _try(self, what: str, call: Callable[[], Found]) -> Found:
        """Make one call to Flower. Raise ``LinkAway`` in place of Flower's exceptions about a link that is away."""
        try:
            found = call()
        except Exception as error:
            if not link_is_away(error):
                raise
            reason = " ".join(f"{what}: {type(error).__name__}: {error}".split())[:300]
            if not self._failures.get(what):
                self._note("link away", reason)
            self._failures[what] = self._failures.get(what, 0) + 1
            raise LinkAway(reason) from error
        if self._failures.pop(what, 0):
            self._note("link back", what)
        return found

    def _note(self, event: str, reason: str) -> None:
        if self.events is not None:
            self.events.note(event, reason=reason)


class DeliveryFailure(NamedTuple):
    """The reason why there is no readable reply: it was lost, or it is malformed."""

    reason: str
    lost: bool  # True if the node was not connected or failed; False if it sent something that cannot be read
    link: bool = False  # whether the link lost the message or the reply; the node may have no fault


class Transport(Protocol):
    """The server's connection to nodes."""

    def nodes(self) -> list[int]:
        """The nodes that are connected."""
        ...

    def send(self, envelopes: Sequence[tuple[int, Head]], arrays: Arrays, ttl: float) -> list[str]:
        """Send the same arrays to several nodes, each with a head of its own.

        Args:
            envelopes: The node and the head of each message.
            arrays: The arrays.
            ttl: Seconds for which the link keeps the messages.

        Returns:
            A ticket for each message, by which its reply is collected. An empty one stands for a message that the link
            did not take; it must be sent again.

        Raises:
            FedsteinError: The link refuses messages of this size.
        """
        ...

    def collect(self, tickets: Iterable[str]) -> dict[str, Envelope | DeliveryFailure]:
        """The replies that have come, by ticket. Each reply is returned only once."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait between two checks for replies."""
        ...


class GridTransport:
    """The transport over a Flower Grid, whose link may be away at times."""

    def __init__(self, grid: Grid, events: Events | None = None):
        self.grid = grid if isinstance(grid, RetryingGrid) else RetryingGrid(grid, events)

    def nodes(self) -> list[int]:
        return list(self.grid.get_node_ids())

    def send(self, envelopes: Sequence[tuple[int, Head]], arrays: Arrays, ttl: float) -> list[str]:
        content = arrays_content(arrays)
        messages = [
            Message(
                to_record(head, content),
                dst_node_id=node,
                message_type=TYPES.get(head["kind"], MessageType.QUERY),
                ttl=ttl,
            )
            for node, head in envelopes
        ]
        tickets = list(self.grid.push_messages(messages))
        if len(tickets) != len(messages):  # Flower returns nothing if the link answers 413, payload too large
            raise FedsteinError(f"the link refused a request to {len(messages)} nodes as too large; see Flower's log")
        return tickets

    def collect(self, tickets: Iterable[str]) -> dict[str, Envelope | DeliveryFailure]:
        found: dict[str, Envelope | DeliveryFailure] = {}
        for message in self.grid.pull_messages(list(tickets)):
            found[message.metadata.reply_to_message_id] = read_reply(message)  # the source of an error may be the link
        return found

    def wait(self, seconds: float) -> None:
        time.sleep(max(seconds, self.grid.pause))


def read_reply(message: Message) -> Envelope | DeliveryFailure:
    """Read a reply of Flower's.

    Args:
        message: The reply.

    Returns:
        Head and arrays, or the reason why there are none.
    """
    if message.has_error():
        code = message.error.code
        return DeliveryFailure(f"error {code}: {message.error.reason}", True, code in LOST_BY_LINK)
    try:
        return from_record(message.content)
    except InvalidMessage as error:
        return DeliveryFailure(str(error), False)
