"""A Flower Grid in this process: real messages, really serialised, handled by the real ClientApp."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedstein.flower.node.client_app import app

Meddle = Callable[[Message], Message | None]  # with a reply; None: it never comes


def over_the_wire(message: Message) -> Message:
    """What arrives: the message made anew from the bytes that Flower would send."""
    objects = {key: item.deflate() for key, item in get_all_nested_objects(message).items()}
    arrived = inflate_object_from_contents(message.object_id, objects)
    assert isinstance(arrived, Message)
    arrived.metadata.__dict__["_message_id"] = message.object_id
    return arrived


class LoopGrid(Grid):
    """Nodes by id with their node configs; ``meddle`` sees the request and the reply before the server does."""

    def __init__(self, nodes: dict[int, dict[str, Any]]):
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 0
        self.nodes = dict(nodes)
        self.replies: dict[str, Message] = {}
        self.sent: list[Message] = []
        self.meddle: Callable[[Message, Message], Message | None] = lambda request, reply: reply
        self.before: Callable[[Message], bool] = lambda request: True  # False: the request is lost

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        tickets = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            tickets.append(message.metadata.message_id)
            self.sent.append(message)
            arrived = over_the_wire(message)
            node = message.metadata.dst_node_id
            if node not in self.nodes or not self.before(arrived):
                continue
            context = Context(run_id=1, node_id=node, node_config=self.nodes[node], state=RecordDict(), run_config={})
            try:
                reply = app(arrived, context)
            except Exception as problem:
                reply = Message(Error(2, repr(problem)), reply_to=arrived)
            answer = self.meddle(arrived, reply)
            if answer is not None:
                self.replies[message.metadata.message_id] = over_the_wire(answer) if answer.has_content() else answer
        return tickets

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(ticket) for ticket in list(message_ids) if ticket in self.replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))
