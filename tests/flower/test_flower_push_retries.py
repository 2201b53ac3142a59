"""A node's reply whose objects the link refuses or does not ask for: all of them arrive all the same."""

from __future__ import annotations

import pytest
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from fedstein.flower.node.push_retries import retry_pushes, with_retries

TREE = ObjectTree(object_id="a", children=[ObjectTree(object_id="b"), ObjectTree(object_id="c")])


class Link:
    """Takes a head and its objects. It can lose an acknowledgement, or the request, as a real link does."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.heads = 0
        self.unsaid: set[str] = set()  # objects that it stores without being able to say so
        self.deaf = self.forgot = False

    def send(self, message: str, tree: ObjectTree, seconds: float) -> tuple[set[str], str]:
        assert (message, tree, seconds) == ("reply", TREE, 0.5)
        self.heads += 1
        return set() if self.forgot else set("abc") - set(self.stored), f"session {self.heads}"

    def push(self, run: int, session: str, name: str, content: bytes) -> None:
        known = (not session or session == f"session {self.heads}") and name not in self.stored
        if not self.deaf and known:
            self.stored[name] = content
        if self.deaf or not known or name in self.unsaid:
            raise ObjectPushError(name, run, session)


def deliver(link: Link) -> None:
    send, push = with_retries(link.send, link.push, (0.0, 0.0))
    missing, session = send("reply", TREE, 0.5)
    for name in sorted(missing):
        push(1, session, name, name.encode())


def test_an_object_that_the_link_has_and_could_not_acknowledge() -> None:
    link = Link()
    link.unsaid = {"b"}
    deliver(link)
    assert link.stored == {name: name.encode() for name in "abc"}
    assert link.heads == 2, "c goes to the session that the second head began"


def test_a_head_that_the_link_has_and_whose_request_it_knows_no_more() -> None:
    link = Link()
    link.forgot, link.stored = True, {"b": b"b"}
    deliver(link)
    assert link.stored == {name: name.encode() for name in "abc"}


def test_a_reply_that_the_link_takes_at_once() -> None:
    link = Link()
    deliver(link)
    assert (set(link.stored), link.heads) == (set("abc"), 1)


def test_a_link_that_refuses_for_good_is_said_to() -> None:
    link = Link()
    link.deaf = True
    with pytest.raises(ObjectPushError):
        deliver(link)
    assert link.heads == 3


def test_a_node_without_open_messages_does_not_wait_for_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two replies were sent together; the second message then asks for a reply that is gone already."""
    from flwr.supernode import start_client_internal as node

    pushed: list[dict[str, object]] = []
    monkeypatch.setattr(node, "_push_messages", lambda **given: pushed.append(given))
    retry_pushes()
    state = InMemoryNodeState(InMemoryObjectStore())
    given = {"object_store": None, "send": None, "push_object": None}
    node._push_messages(state=state, **given)
    assert not pushed
    state.msg_store["open"] = object()  # type: ignore[assignment]
    node._push_messages(state=state, **given)
    assert len(pushed) == 1
