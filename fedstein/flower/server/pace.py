"""The measured speed of messages, and the timeout after which a request is sent again.

On a slow connection a message of some megabytes takes longer than a timeout that was chosen for a fast one. Sending it
again would delay it further. So the server measures how long exchanges with each client take. A timeout is at least
``MARGIN`` times the time that a message of that size would take at the speed of the slowest of the last ``LAST``
exchanges, up to ``LONGEST`` times the timeout of the config.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from fedstein.flower.server.pending import Pending

MARGIN = 3.0
LAST = 3  # exchanges of a client that count
SMALLEST = 20_000  # bytes; the time of a smaller exchange is mostly overhead and does not show the speed
LONGEST = 20.0  # the longest timeout, as a multiple of the config's: a bound on clients that are slow on purpose


class Pace:
    """Seconds for each byte of the last exchanges with each client."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[float]] = {}

    def note(self, clients: Sequence[int], size: int, seconds: float) -> None:
        """Record the duration of an exchange.

        Args:
            clients: The clients that the message went to or came from.
            size: Its bytes, in both directions.
            seconds: Its duration, including the computation.
        """
        if size >= SMALLEST:
            for client in clients:
                self._seen.setdefault(client, deque(maxlen=LAST)).append(seconds / size)

    def timeout(self, client: int, size: int, given: float) -> float:
        """Return the seconds after which a request is sent again or given up.

        Args:
            client: The client.
            size: The bytes of the request and its reply.
            given: The timeout of the config, which is kept if messages are fast enough.

        Returns:
            ``given``, or more if messages of this size take longer to this client.
        """
        slowest = max(self._seen.get(client, (0.0,)))
        return min(max(given, MARGIN * size * slowest), LONGEST * given)


def waiting_text(waiting: Sequence[Pending], name: Callable[[int], str], now: float) -> str:
    """Describe for the log which clients a request waits for.

    Args:
        waiting: The clients that have not answered.
        name: Client -> its name.
        now: The time.

    Returns:
        The clients, at most five of them, with the time since they were asked, or the reason why they were not.
    """
    found = []
    for entry in waiting[:5]:
        asked = f"asked {now - entry.sent:.0f} s ago, {entry.size / 1e6:.2f} MB" if entry.tickets else entry.reason
        found.append(f"{name(entry.client)} ({asked})")
    more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""
    return ", ".join(found) + more
