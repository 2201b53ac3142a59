"""Large objects that several messages have in common, pulled from the link once.

A node that plays several clients gets the same broadcast in a message for each of them. Flower names an object by the
hash of its content, and its SuperNode pulls every object of every message. This module keeps the last large ones.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

LARGE = 2**16  # bytes from which an object is kept
MOST = 2**27  # bytes of all objects that are kept

Pull = Callable[..., dict[str, bytes]]  # ids of objects, ``pull_object_fn`` -> the content of each


class ObjectCache:
    """Replaces the function by which Flower's SuperNode pulls the objects of a message."""

    def __init__(self, pull: Pull, large: int = LARGE, most: int = MOST):
        """
        Args:
            pull: Flower's function.
            large: Bytes from which an object is kept.
            most: Bytes of all objects that are kept; those that were used longest ago are dropped.
        """
        self.pull, self.large, self.most = pull, large, most
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()  # messages whose arrays come late are received in threads (``receiver``)

    def __call__(
        self, object_ids: list[str], pull_object_fn: Callable[[str], bytes], **others: Any
    ) -> dict[str, bytes]:
        """Get objects, from the link if they are not here.

        Args:
            object_ids: The hashes of the objects.
            pull_object_fn: Gets one object from the link.
            others: The other arguments of Flower's function.

        Returns:
            The content of each object.

        Raises:
            Exception: The exception that Flower raises if the link fails.
        """
        with self._lock:
            here = {name: self._kept[name] for name in object_ids if name in self._kept}
        wanted = [name for name in object_ids if name not in here]
        found = self.pull(wanted, pull_object_fn, **others) if wanted else {}
        with self._lock:
            for name, content in {**here, **found}.items():
                if len(content) >= self.large:
                    self._kept[name] = content
                    self._kept.move_to_end(name)
            while sum(map(len, self._kept.values())) > self.most:
                self._kept.popitem(last=False)
        return {**here, **found}


def keep_objects() -> None:
    """Make Flower's SuperNode in this process pull large objects by an ``ObjectCache``."""
    from flwr.supernode import start_client_internal as node

    node.pull_objects = ObjectCache(node.pull_objects)
