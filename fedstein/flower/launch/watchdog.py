"""Ends process groups. As a program, it ends the groups on its list when the process that sent the list has ended.

It reads lines ``+GROUP`` and ``-GROUP``, and acts at the end of its input, which comes even after ``kill -9`` of the
writer. Unlike PR_SET_PDEATHSIG this reaches grandchildren, does not depend on the thread that started the child, and
works outside Linux too. It uses the standard library only, so it starts quickly.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def members(groups: Iterable[int]) -> list[int]:
    """The processes of these groups that still run, without zombies."""
    wanted = set(groups)
    if not (PROC / "self" / "stat").exists():
        return [group for group in wanted if _there(group)]
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):
            # pid (command) state parent group ...; the command may hold spaces and brackets
            state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) in wanted and state not in "ZX":
                found.append(int(entry.name))
    return sorted(found)


def _there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_groups(groups: Iterable[int], number: int) -> None:
    """Send a signal to every process of the groups. Groups that have ended are ignored."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def end_groups(groups: Iterable[int], grace: float) -> None:
    """End every process of the groups.

    Args:
        groups: The groups.
        grace: Seconds between asking processes to stop and killing them; 0 kills them at once.
    """
    groups = list(groups)
    if grace > 0:
        signal_groups(groups, signal.SIGTERM)
        _until_empty(groups, grace)
    signal_groups(groups, signal.SIGKILL)
    _until_empty(groups, 5.0)


def _until_empty(groups: list[int], seconds: float) -> None:
    end = time.monotonic() + seconds
    while members(groups) and time.monotonic() < end:
        time.sleep(0.02)


def main() -> None:
    """Read groups until the input ends, then end them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    end_groups(groups, 3.0)


if __name__ == "__main__":
    main()
