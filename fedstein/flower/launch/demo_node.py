"""``flower-supernode`` with short waits. This module is run as a program.

Flower 1.41 looks for a message every 3 s and for a reply every 0.5 s, and has no setting for this. If a server asks as
soon as it has an answer, the node has always just begun to wait. On one machine these waits take most of a round.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

LONGEST = 0.8


def main() -> None:
    """Run Flower's own ``flower-supernode`` with shorter waits."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    def sleep(seconds: float) -> None:
        time.sleep(min(seconds, LONGEST))

    # Replaces ``time`` only in this module, so that heartbeats and retries keep their waits.
    start_client_internal.time = SimpleNamespace(**{**vars(time), "sleep": sleep})  # type: ignore[assignment]
    flower_supernode()


if __name__ == "__main__":
    main()
