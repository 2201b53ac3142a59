"""Round robin: the clients in turn. The order is as given, drawn once from the seed, or drawn anew for every pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedstein.seeds import ORDER, uniforms
from fedstein.selection.base import Draw, Scheme, no_broadcast, no_survey

ORDERS = ("given", "seeded", "reshuffled")


def round_robin(order: str = "given") -> Scheme:
    """The memory is the sequence of turns to come, at least one whole pass, and the number of passes dealt.

    Several clients a round are the next distinct ones of the sequence, so a round that spans two passes never asks
    one client twice, and nobody loses a turn.
    """

    def one_pass(seed: int, clients: int, number: int) -> list[int]:
        if order == "given":
            return list(range(clients))
        turn = number if order == "reshuffled" else 0
        return np.argsort(uniforms(seed, ORDER, turn, count=clients)).tolist()

    def first(seed: int, clients: int) -> dict[str, Any]:
        return {"passes": 1, "turns": one_pass(seed, clients, 0)}

    def draw(memory: dict[str, Any], candidates: Sequence[int], indicators: None, draws: np.ndarray) -> Draw:
        eligible = set(candidates)
        return Draw([client for client in dict.fromkeys(memory["turns"]) if client in eligible], None)

    def after(memory: dict[str, Any], selected: Sequence[int], seed: int, clients: int) -> dict[str, Any]:
        turns, passes = list(memory["turns"]), memory["passes"]
        for client in selected:
            turns.remove(client)  # its first turn only
        while len(turns) < clients:
            turns += one_pass(seed, clients, passes)
            passes += 1
        return {"passes": passes, "turns": turns}

    return Scheme("round_robin", no_broadcast, no_survey, None, None, first, draw, after)
