"""Sending replies so that they reach the link even if the connection is cut while they are sent.

Flower's SuperNode sends a reply's head and then its objects. Two cuts lose the objects, and the server then waits for
minutes for a reply that was announced and never becomes complete:

- The link has stored an object, but its acknowledgement was lost. The SuperNode sends the object again, is told that it
  is not expected, and drops the whole reply. Here the head is sent again instead, and the link names the objects that
  are still missing.
- The link has stored the head, but its acknowledgement was lost, and the server has already taken the head. The
  SuperNode sends the head again, and the link names no objects because it no longer knows the request. Here all objects
  are then sent without a session, and the link takes those that are missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

PUSH_AGAIN = (0.2, 1.0, 3.0)  # seconds before a reply's head is sent once more
NO_SESSION = ""  # the link then finds the session by the object

Send = Callable[..., tuple[set[str], str]]  # message, object tree, seconds -> the objects that are missing, the session
PushObject = Callable[[int, str, str, bytes], None]  # run, session, object, content


def objects_of(tree: Any) -> set[str]:
    """The ids of all objects of a message."""
    return {each.object_id for each in iterate_object_tree(tree)}


def with_retries(
    send: Send, push_object: PushObject, pauses: tuple[float, ...] = PUSH_AGAIN
) -> tuple[Send, PushObject]:
    """Make the two functions that send a reply go on if the link refuses an object.

    Args:
        send: Sends the head.
        push_object: Sends an object.
        pauses: Seconds before each further try.

    Returns:
        The same two functions; the second sends the head again if the link refuses an object.
    """
    last: list[Any] = []
    sessions: dict[str, str] = {}  # the session that Flower uses -> the session that the link uses now
    lock = threading.Lock()

    def send_and_keep(*message: Any) -> tuple[set[str], str]:
        last[:] = message
        missing, session = send(*message)
        return (missing, session) if missing else (objects_of(message[1]), NO_SESSION)

    def push_again(run: int, session: str, name: str, content: bytes) -> None:
        for pause in (*pauses, None):
            used = sessions.get(session, session)
            if used == NO_SESSION:
                with suppress(ObjectPushError):  # the link has it
                    push_object(run, used, name, content)
                return None
            try:
                return push_object(run, used, name, content)
            except ObjectPushError:
                if pause is None:
                    raise
                time.sleep(pause)
            with lock:
                if sessions.get(session, session) == used:  # no other object has sent the head again in the meantime
                    missing, fresh = send(*last)
                    sessions[session] = fresh if missing else NO_SESSION
                    if missing and name not in missing:
                        return None  # the link has the object, but its acknowledgement was lost
        return None

    return send_and_keep, push_again


def no_message_pending(state: Any) -> bool:
    """Whether the node has answered all its messages.

    Flower sends all finished replies, and waits for a reply after every message that it takes. A message whose arrays
    came late (``receiver``) may have been answered together with another one, so that no reply is left to wait for.

    Args:
        state: The state of Flower's SuperNode, which keeps a message until its reply has been sent.
    """
    with state.lock_msg_store:
        return not state.msg_store


def retry_pushes() -> None:
    """Make Flower's SuperNode in this process retry replies that were cut off while they were sent."""
    from flwr.supernode import start_client_internal as node

    push = node._push_messages

    def push_with_retries(state: Any, object_store: Any, send: Send, push_object: PushObject) -> None:
        if no_message_pending(
            state
        ):  # otherwise Flower would wait for ever, and the node would take no further message
            return
        send, push_object = with_retries(send, push_object)
        push(state=state, object_store=object_store, send=send, push_object=push_object)

    node._push_messages = push_with_retries
