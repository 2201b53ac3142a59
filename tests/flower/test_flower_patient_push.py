"""A node's reply whose objects the link refuses: the head is sent again, the missing objects go to the new session."""

from __future__ import annotations

import pytest
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from fedstein.flower.node.patient_push import patiently


class Link:
    """Takes a head and its objects. It can lose an acknowledgement, or a whole session, as a real link does."""

    def __init__(self, wanted: set[str]):
        self.wanted, self.stored, self.heads = set(wanted), {}, 0
        self.unsaid: set[str] = set()  # objects that it stores without being able to say so
        self.deaf = False

    def send(self, message: str, tree: str, seconds: float) -> tuple[set[str], str]:
        assert (message, tree, seconds) == ("reply", "tree", 0.5)
        self.heads += 1
        return self.wanted - set(self.stored), f"session {self.heads}"

    def push(self, run: int, session: str, name: str, content: bytes) -> None:
        known = session == f"session {self.heads}" and name not in self.stored
        if not self.deaf and known:
            self.stored[name] = content
        if self.deaf or not known or name in self.unsaid:
            raise ObjectPushError(name, run, session)


def deliver(link: Link) -> None:
    send, push = patiently(link.send, link.push, (0.0, 0.0))
    missing, session = send("reply", "tree", 0.5)
    for name in sorted(missing):
        push(1, session, name, name.encode())


def test_an_object_that_the_link_has_and_could_not_acknowledge() -> None:
    link = Link({"a", "b", "c"})
    link.unsaid = {"b"}
    deliver(link)
    assert link.stored == {name: name.encode() for name in "abc"}
    assert link.heads == 2, "c goes to the session that the second head began"


def test_a_reply_that_the_link_takes_at_once() -> None:
    link = Link({"a", "b"})
    deliver(link)
    assert (set(link.stored), link.heads) == ({"a", "b"}, 1)


def test_a_link_that_refuses_for_good_is_said_to() -> None:
    link = Link({"a"})
    link.deaf = True
    with pytest.raises(ObjectPushError):
        deliver(link)
    assert link.heads == 3
