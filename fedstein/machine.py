"""The resources of this machine: cores, memory, and memory maps."""

from __future__ import annotations

import os


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int | None:
    """Bytes of memory, None if the system does not say."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None


def memory_maps() -> tuple[int, int] | None:
    """How many memory maps this process has and how many it may have; None if the system does not say.

    Every compiled program takes several maps. A process that reaches the limit (65,530 by default on Linux) crashes.
    """
    try:
        with open("/proc/self/maps", "rb") as lines, open("/proc/sys/vm/max_map_count") as limit:
            return sum(1 for _ in lines), int(limit.read())
    except (OSError, ValueError):
        return None
