"""Round robin: the clients in turn. The order is as given, drawn once from the seed, or drawn anew for every pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from fedstein.seeds import ORDER, uniforms
from fedstein.selection.base import Draw, Memory, Scheme, SchemeKind, SelectionSettings
from fedstein.stein.kernel import Kernel


class RoundRobinSettings(SelectionSettings):
    """Settings of round robin."""

    kind: str = "round_robin"
    order: Literal["given", "seeded", "reshuffled"] = Field(
        "given", description="By client id, in an order drawn once from the seed, or in a new order for every pass."
    )


def round_robin(settings: RoundRobinSettings, kernel: Kernel) -> Scheme:
    """Build the scheme. It needs no reports and no kernel.

    The memory is the sequence of turns to come, in which every client has a turn, and the number of passes dealt.
    Several clients a round are the next distinct ones of the sequence, so a round that spans two passes never asks one
    client twice, and no client loses a turn. A client that is absent for long is owed one turn besides that of the
    current pass, not one for every pass that it missed.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the run.

    Returns:
        The scheme.
    """
    order = settings.order

    def one_pass(seed: int, clients: int, number: int) -> list[int]:
        if order == "given":
            return list(range(clients))
        turn = number if order == "reshuffled" else 0
        return np.argsort(uniforms(seed, ORDER, turn, count=clients)).tolist()

    def first(seed: int, clients: int) -> Memory:
        return {"passes": 1, "turns": one_pass(seed, clients, 0)}

    def draw(memory: Memory, candidates: Sequence[int], indicators: None, uniforms: np.ndarray) -> Draw:
        eligible = set(candidates)
        return Draw([client for client in dict.fromkeys(memory["turns"]) if client in eligible], None)

    def after(memory: Memory, selected: Sequence[int], seed: int, clients: int) -> Memory:
        turns, passes = list(memory["turns"]), memory["passes"]
        for client in selected:
            turns.remove(client)  # its first turn only
        while len(turns) < clients or len(set(turns)) < clients:
            turns += one_pass(seed, clients, passes)
            passes += 1
        return {"passes": passes, "turns": latest(turns, 2)}

    return Scheme("round_robin", draw, first=first, after=after)


def latest(turns: Sequence[int], most: int) -> list[int]:
    """The turns without those that a client has beyond its latest few.

    Args:
        turns: Clients in the order of their turns.
        most: How many turns of a client are kept.

    Returns:
        The turns that are left, in the same order.
    """
    left, kept = Counter(turns), []
    for client in turns:
        if left[client] <= most:
            kept.append(client)
        left[client] -= 1
    return kept


ROUND_ROBIN = SchemeKind("round_robin", "the clients in turn; no reports", RoundRobinSettings, round_robin)
