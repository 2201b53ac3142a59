"""Nodes that play several clients of a trial: the ids and names of the clients, and their distribution over nodes."""

from __future__ import annotations

import itertools
import re
from typing import Any

from fedstein.errors import InputError

MOST = 1_000_000  # the most clients of one node; a larger number is probably a typing error


def parse_client_ids(text: Any) -> tuple[int, ...]:
    """Read ``partition-ids``.

    Args:
        text: Numbers and ranges, separated by commas: ``"0-249"``, ``"0,3,7-9"``.

    Returns:
        The ids, sorted.

    Raises:
        InputError: The text has another form, or names a client twice.
    """
    parts = [part.strip() for part in str(text).split(",")]
    if not all(re.fullmatch(r"\d{1,9}(-\d{1,9})?", part) for part in parts):
        raise InputError(f'--node-config: expected partition-ids as numbers and ranges, such as "0-249", got {text!r}')
    bounds = [tuple(int(number) for number in part.split("-")) for part in parts]
    if any(each[0] > each[-1] for each in bounds) or sum(each[-1] - each[0] + 1 for each in bounds) > MOST:
        raise InputError(f"--node-config: partition-ids has a range that is empty or too large: {text!r}")
    found = [client for each in bounds for client in range(each[0], each[-1] + 1)]
    if len(set(found)) < len(found):
        raise InputError(f"--node-config: partition-ids names a client twice: {text!r}")
    return tuple(sorted(found))


def name_of(client: int) -> str:
    """The default name of a client."""
    return f"client-{client}"


def ranges(clients: int, nodes: int) -> list[str]:
    """Share clients out over nodes, as values of ``partition-ids``.

    Args:
        clients: How many clients there are.
        nodes: How many nodes.

    Returns:
        A range of ids for each node, of sizes that differ by at most one. Nodes that would get no client are left out.
    """
    cuts = [clients * number // nodes for number in range(nodes + 1)]
    return [f"{low}-{high - 1}" for low, high in itertools.pairwise(cuts) if high > low]
