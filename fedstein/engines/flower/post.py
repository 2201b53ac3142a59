"""Sending letters to nodes and collecting what comes back, over Flower's Grid."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from fedstein.engines.flower.codec import array_record, from_record, to_record
from fedstein.engines.flower.letters import BadLetter, Head, Letter
from fedstein.sites.base import Arrays

TYPES = {"train": MessageType.TRAIN, "evaluate": MessageType.EVALUATE}  # everything else is a query


class Trouble(NamedTuple):
    """A message that has no letter to give: lost, or not readable."""

    reason: str
    lost: bool  # the node was not there or broke down; else it sent something that cannot be read


class Post(Protocol):
    """How the server reaches nodes."""

    def nodes(self) -> list[int]:
        """The nodes that are connected."""
        ...

    def send(self, letters: Sequence[tuple[int, Head]], arrays: Arrays, ttl: float) -> list[str]:
        """The same arrays to many nodes, each with a head of its own; returns what to collect replies by."""
        ...

    def collect(self, tickets: Iterable[str]) -> dict[str, Letter | Trouble]:
        """The replies that are there by now."""
        ...

    def rest(self, seconds: float) -> None:
        """Wait between two looks."""
        ...


class GridPost:
    """The post over a Flower Grid."""

    def __init__(self, grid: Grid):
        self.grid = grid

    def nodes(self) -> list[int]:
        return list(self.grid.get_node_ids())

    def send(self, letters: Sequence[tuple[int, Head]], arrays: Arrays, ttl: float) -> list[str]:
        record = array_record(arrays)
        messages = [
            Message(
                to_record(head, record),
                dst_node_id=node,
                message_type=TYPES.get(head["kind"], MessageType.QUERY),
                ttl=ttl,
            )
            for node, head in letters
        ]
        return list(self.grid.push_messages(messages))

    def collect(self, tickets: Iterable[str]) -> dict[str, Letter | Trouble]:
        found: dict[str, Letter | Trouble] = {}
        for message in self.grid.pull_messages(list(tickets)):
            found[message.metadata.reply_to_message_id] = read_reply(message)  # the source of an error may be the link
        return found

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)


def read_reply(message: Message) -> Letter | Trouble:
    """The letter in a reply, or why there is none."""
    if message.has_error():
        return Trouble(f"error {message.error.code}: {message.error.reason}", True)
    try:
        return from_record(message.content)
    except BadLetter as error:
        return Trouble(str(error), False)
