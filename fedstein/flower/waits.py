"""Shorter waits in place of Flower 1.41's long ones, which have no setting, and a check for that version of Flower.

A SuperNode looks for a message every 3 s and for the reply to it every 0.5 s, and a process that finds a message before
its arrays waits 1 s. A round of several messages spends most of its time in these waits.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from importlib import metadata
from types import SimpleNamespace

from fedstein.errors import InputError

TESTED = "1.41"  # the minor version of Flower whose internals this module and ``flower.node.tasks`` use
SHORTEST, LONGEST = 0.02, 3.0  # seconds between two looks for a message
SHARE = 0.1  # the next look comes after this share of the time since the last message
BUSY = 4.0  # times that a look took, until the next one: a link with much to do is asked less often
FIRST_BACK_OFF, LAST_BACK_OFF = 0.02, 1.0  # seconds between two tries to get an array that is on its way


def tested_flower() -> bool:
    """Whether the installed Flower is the version for which this module was written."""
    return metadata.version("flwr").startswith(f"{TESTED}.")


def require_tested_flower() -> None:
    """Refuse another version of Flower.

    Raises:
        InputError: Another version of Flower is installed.
    """
    if not tested_flower():
        raise InputError(
            f"a resident node works with Flower {TESTED}, found {metadata.version('flwr')}; use --isolation "
            f"subprocess, which is Flower's own way, or install flwr=={TESTED}.*"
        )


class Alarm:
    """Decides when a node looks for messages: often during a run, and rarely if no request has come for a while."""

    def __init__(self) -> None:
        self.arrived = threading.Event()  # set when a message waits for an answer
        self.answered = threading.Event()  # set when the reply is ready to be sent
        self._last, self._took = time.monotonic(), 0.0

    def looked(self, seconds: float) -> None:
        """Note how long the link took to say whether there is a message."""
        self._took = seconds

    def message_came(self) -> None:
        """Note that a message has come from the link."""
        self._last = time.monotonic()
        self.arrived.set()

    def reply_made(self) -> None:
        """Note that a reply is complete."""
        self._last = time.monotonic()
        self.answered.set()

    def pause(self) -> float:
        """Decide when to look for a message again.

        Returns:
            Seconds: a tenth of the time since the last message, or four times the time of the last look, whichever is
            longer, within bounds.
        """
        return min(max(SHARE * (time.monotonic() - self._last), BUSY * self._took, SHORTEST), LONGEST)

    def sleep(self, seconds: float) -> None:
        """Replace ``time.sleep`` in Flower's node, which waits 3 s for a message and 0.5 s for a reply."""
        if seconds >= 1.0:
            time.sleep(self.pause())
        else:
            self.answered.wait(seconds)
            self.answered.clear()


def shorten_node_waits(alarm: Alarm) -> None:
    """Make Flower's SuperNode in this process wait as ``alarm`` says."""
    from flwr.supernode import start_client_internal as node

    node.pull_objects = partial(node.pull_objects, initial_backoff=FIRST_BACK_OFF, backoff_cap=LAST_BACK_OFF)
    # Replaces ``time`` only in this module, so that heartbeats and retries keep their waits.
    node.time = SimpleNamespace(**{**vars(time), "sleep": alarm.sleep})  # type: ignore[assignment]


def shorten_server_waits() -> None:
    """Make Flower's grid in this process ask sooner for arrays in transit, if its version is the tested one."""
    if not tested_flower():
        return
    from flwr.superlink.grid import http_grid

    if not isinstance(http_grid.pull_objects, partial):
        http_grid.pull_objects = partial(
            http_grid.pull_objects, initial_backoff=FIRST_BACK_OFF, backoff_cap=LAST_BACK_OFF
        )
