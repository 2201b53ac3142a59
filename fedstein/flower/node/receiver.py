"""Taking messages from the link, although a message may stay incomplete.

A server gives the link a message and then the arrays that belong to it. If the server is killed in between, the arrays
never come. Flower's SuperNode waits for them until the link declares the run dead, which is when two heartbeats of the
server are missing: up to 60 s after the kill. Until then it takes no other message, so the run that continues after the
kill waits just as long for its first answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from logging import INFO
from typing import Any

from flwr.supercore import log
from flwr.supercore.run import RunNotRunningException

from fedstein.flower.waits import Alarm

PATIENCE = 3.0  # seconds to wait for the arrays of a message before the node takes other messages


class Reception(threading.Thread):
    """One message that is being stored in the node, with its arrays."""

    def __init__(self, store: Callable[[], int | None], alarm: Alarm) -> None:
        super().__init__(name="fedstein-message", daemon=True)
        self.store, self.alarm = store, alarm
        self.run_id: int | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.run_id = self.store()
        except BaseException as error:
            self.error = error
        if self.run_id is not None:
            self.alarm.message_came()

    def result(self) -> int | None:
        """The run of the message, or None if the message has been dropped."""
        if self.error is not None:
            raise self.error
        return self.run_id


class Receiver:
    """Replaces the function by which Flower's SuperNode takes one message and stores it.

    A message whose arrays do not come at once is stored in the background. The call then returns as if there had been
    no message, and a later call returns the run of that message.
    """

    def __init__(self, store: Callable[..., int | None], alarm: Alarm, patience: float = PATIENCE) -> None:
        """
        Args:
            store: Flower's function.
            alarm: The alarm that is notified when a message is complete.
            patience: Seconds to wait for the arrays of a message.
        """
        self.store, self.alarm, self.patience = store, alarm, patience
        self._late: list[Reception] = []

    def __call__(self, *, receive: Callable[[], Any], **others: Any) -> int | None:
        """Take a message, if there is one.

        Args:
            receive: Gets a message without its arrays from the link, or None.
            others: The other arguments of Flower's function.

        Returns:
            The run of a message that is complete, or None.

        Raises:
            Exception: The exception that Flower raises if the link fails.
        """
        for reception in self._late:
            if not reception.is_alive():
                self._late.remove(reception)
                return reception.result()
        began = time.monotonic()
        try:
            found = receive()
        except RunNotRunningException:
            return None
        self.alarm.looked(time.monotonic() - began)
        if found is None:
            return None
        reception = Reception(lambda: self.store(receive=lambda: found, **others), self.alarm)
        reception.start()
        reception.join(self.patience)
        if reception.is_alive():
            log(INFO, "fedstein: the arrays of a message are not there yet; the node takes other messages meanwhile")
            self._late.append(reception)
            return None
        return reception.result()


def take_messages(alarm: Alarm) -> None:
    """Make Flower's SuperNode in this process take messages by a ``Receiver``."""
    from flwr.supernode import start_client_internal as node

    node._pull_and_store_message = Receiver(node._pull_and_store_message, alarm)  # type: ignore[assignment]
