"""A scheme for clients that can each be visited a limited number of times, as in private runs.

The scheme still says who comes first. It draws from the clients that have visits left, with two corrections:

- With indicators, clients that were never visited come before all others, because nothing is known of them yet.
- No visit is wasted. Let R be the rounds left, this one included, P the clients of a round, and v_k the visits that
  client k has left. All R P visits can take place as long as sum_k min(v_k, R) >= R P. The difference is the slack.
  A client with v_k >= R that is passed over now loses a visit, so of those clients all but as many as the slack allows
  are asked in this round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedstein.selection.base import Draw, Memory, Scheme


def within_visits(scheme: Scheme, visits: int, rounds: int, per_round: int) -> Scheme:
    """The scheme, with every client selected at most so often.

    Args:
        scheme: The scheme that decides among the clients that may be selected.
        visits: How often each client may be selected in the run.
        rounds: The rounds of the run.
        per_round: The clients of a round.

    Returns:
        The scheme. Its memory holds the visits that are left, the rounds done, and the memory of the inner scheme.
    """

    def first(seed: int, clients: int) -> Memory:
        return {"left": [visits] * clients, "rounds": 0, "inner": scheme.first(seed, clients)}

    def draw(memory: Memory, candidates: Sequence[int], indicators: Any, uniforms: np.ndarray) -> Draw:
        left = memory["left"]
        open_to = [i for i, client in enumerate(candidates) if left[client]]
        fresh = [i for i in open_to if indicators is not None and left[candidates[i]] == visits]
        known = [i for i in open_to if i not in fresh]
        order = [candidates[i] for i in sorted(fresh, key=lambda i: uniforms[i])]
        probabilities: list[float] | None = None
        if known:
            values = None if indicators is None else [indicators[i] for i in known]
            drawn = scheme.draw(memory["inner"], [candidates[i] for i in known], values, uniforms[known])
            order += drawn.order
            probabilities = drawn.probabilities
        due = due_now(left, candidates, rounds - memory["rounds"], per_round)
        if indicators is None:
            return Draw(due_first(order, *due), None)
        shares = np.zeros(len(candidates))
        if fresh:
            shares[fresh] = 1 / len(fresh)
        elif probabilities is not None:
            shares[known] = probabilities
        return Draw(due_first(order, *due), shares.tolist())

    def after(memory: Memory, selected: Sequence[int], seed: int, clients: int) -> Memory:
        left = list(memory["left"])
        for client in selected:
            left[client] -= 1
        inner = scheme.after(memory["inner"], selected, seed, clients)
        return {"left": left, "rounds": memory["rounds"] + 1, "inner": inner}

    return scheme._replace(first=first, draw=draw, after=after, learn=None)


def due_now(left: Sequence[int], candidates: Sequence[int], rounds: int, per_round: int) -> tuple[set[int], int]:
    """The clients that lose a visit if they are not selected now, and how many of them must be.

    Args:
        left: The visits that each client has left.
        candidates: The clients that can be selected in this round.
        rounds: The rounds that are left, this one included.
        per_round: The clients of a round.

    Returns:
        The clients, and the number.
    """
    urgent = {client for client in candidates if left[client] >= rounds}
    slack = sum(min(left[client], rounds) for client in candidates) - rounds * per_round
    return urgent, max(0, min(len(urgent) - slack, len(urgent)))


def due_first(order: Sequence[int], urgent: set[int], needed: int) -> list[int]:
    """The order with the first ``needed`` urgent clients in front."""
    forward = [client for client in order if client in urgent][:needed]
    return forward + [client for client in order if client not in forward]
