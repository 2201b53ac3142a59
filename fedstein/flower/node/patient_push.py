"""Replies that reach the link although the connection is cut while they are sent.

Flower's SuperNode sends a reply's head and then its objects. If the connection is cut after the link has stored an
object and before it could say so, the SuperNode asks again, hears that nobody waits for that object, and drops the
whole reply. The link then announces a reply that never becomes complete, and the server waits for it for minutes. Here
the head is sent again instead: the link knows it by its content and names the objects that are still missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

PUSH_AGAIN = (0.2, 1.0, 3.0)  # seconds before a reply's head is sent once more

Send = Callable[..., tuple[set[str], str]]  # message, object tree, seconds -> the objects that are missing, the session
PushObject = Callable[[int, str, str, bytes], None]  # run, session, object, content


def patiently(send: Send, push_object: PushObject, pauses: tuple[float, ...] = PUSH_AGAIN) -> tuple[Send, PushObject]:
    """The two functions that send a reply, so that an object which the link refuses does not end the reply.

    Args:
        send: Sends the head.
        push_object: Sends an object.
        pauses: Seconds before each further try.

    Returns:
        The same two functions; the second sends the head again where the link refuses an object.
    """
    last: list[Any] = []
    sessions: dict[str, str] = {}  # the session that Flower knows -> the one that the link knows now
    lock = threading.Lock()

    def send_and_keep(*message: Any) -> tuple[set[str], str]:
        last[:] = message
        return send(*message)

    def push_again(run: int, session: str, name: str, content: bytes) -> None:
        for pause in (*pauses, None):
            used = sessions.get(session, session)
            try:
                return push_object(run, used, name, content)
            except ObjectPushError:
                if pause is None:
                    raise
                time.sleep(pause)
            with lock:
                if sessions.get(session, session) == used:  # no other object has done it meanwhile
                    missing, sessions[session] = send(*last)
                    if name not in missing:
                        return None  # the link has it, and could not say so
        return None

    return send_and_keep, push_again


def keep_replies() -> None:
    """Make Flower's SuperNode in this process send replies patiently."""
    from flwr.supernode import start_client_internal as node

    push = node._push_messages

    def push_patiently(state: Any, object_store: Any, send: Send, push_object: PushObject) -> None:
        send, push_object = patiently(send, push_object)
        push(state=state, object_store=object_store, send=send, push_object=push_object)

    node._push_messages = push_patiently
