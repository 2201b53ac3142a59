"""Large objects of a message are pulled from the link once, and only the last ones are kept."""

from __future__ import annotations

import pytest

from fedstein.flower.node.object_cache import ObjectCache

CONTENTS = {"broadcast": b"b" * 60, "site": b"s" * 50, "head": b"h" * 9}


class Link:
    """Gives objects, and remembers which it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def give(self, name: str) -> bytes:
        self.asked.append(name)
        return CONTENTS[name]


def pull(object_ids, pull_object_fn, **others):
    assert others == {"initial_backoff": 0.1}
    return {name: pull_object_fn(name) for name in object_ids}


def test_a_large_object_is_pulled_once_and_a_small_one_for_every_message():
    link, cache = Link(), ObjectCache(pull, large=10, most=200)
    for _ in range(3):
        found = cache(["broadcast", "head"], pull_object_fn=link.give, initial_backoff=0.1)
        assert found == {name: CONTENTS[name] for name in ("broadcast", "head")}
    assert link.asked == ["broadcast", "head", "head", "head"]
    assert cache(["broadcast"], link.give) == {"broadcast": CONTENTS["broadcast"]}, "nothing is left to pull"


def test_the_objects_used_longest_ago_are_dropped_first():
    link, cache = Link(), ObjectCache(pull, large=10, most=100)
    for name in ("broadcast", "site", "broadcast", "site"):
        assert cache([name], link.give, initial_backoff=0.1) == {name: CONTENTS[name]}
    assert link.asked == ["broadcast", "site", "broadcast", "site"], "there is room for one of the two"


def test_what_could_not_be_pulled_is_not_kept():
    def fail(name: str) -> bytes:
        raise ConnectionError("the link is away")

    link, cache = Link(), ObjectCache(pull, large=10, most=200)
    with pytest.raises(ConnectionError):
        cache(["broadcast"], fail, initial_backoff=0.1)
    cache(["broadcast"], link.give, initial_backoff=0.1)
    assert link.asked == ["broadcast"]
