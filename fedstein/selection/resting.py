"""A limit on how often one client is drawn: a client that has trained is not drawn for some rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedstein.inference.sites.base import Arrays
from fedstein.selection.base import Draw, Memory, Scheme


def resting(scheme: Scheme, rest: int) -> Scheme:
    """The scheme draws among clients that have not trained in the last rounds; the others come after them.

    A client is then drawn at most once in ``rest`` + 1 rounds. Those that rest come last, the longest rested first, so
    that a round is still possible if all others fail.

    Args:
        scheme: The scheme.
        rest: Rounds; 0 changes nothing.

    Returns:
        The scheme with the limit. Its memory holds that of the scheme, and when each client has last trained.
    """
    if not rest:
        return scheme

    def first(seed: int, clients: int) -> Memory:
        return {"scheme": scheme.first(seed, clients), "rounds": 0, "last": [-1] * clients}

    def draw(memory: Memory, candidates: Sequence[int], indicators: Any, uniforms: np.ndarray) -> Draw:
        last, now = memory["last"], memory["rounds"]
        awake = [i for i, k in enumerate(candidates) if last[k] < 0 or now - last[k] > rest]
        awake = awake or list(range(len(candidates)))
        chosen = [candidates[i] for i in awake]
        counted = None if indicators is None else [indicators[i] for i in awake]
        drawn = scheme.draw(memory["scheme"], chosen, counted, uniforms[awake])
        others = sorted((k for k in candidates if k not in set(chosen)), key=lambda k: (last[k], k))
        if drawn.probabilities is None:
            return Draw([*drawn.order, *others], None)
        by_place = dict(zip(awake, drawn.probabilities, strict=True))
        return Draw([*drawn.order, *others], [by_place.get(i, 0.0) for i in range(len(candidates))])

    def after(memory: Memory, selected: Sequence[int], seed: int, clients: int) -> Memory:
        last, rounds = list(memory["last"]), memory["rounds"] + 1
        for client in selected:
            last[client] = rounds - 1
        inner = scheme.after(memory["scheme"], selected, seed, clients)
        return {"scheme": inner, "rounds": rounds, "last": last}

    wrapped = scheme._replace(first=first, draw=draw, after=after)
    if scheme.learn is None:
        return wrapped
    learned = scheme.learn

    def learn(memory: Memory, reports: Mapping[int, Arrays]) -> Memory:
        return {**memory, "scheme": learned(memory["scheme"], reports)}

    return wrapped._replace(learn=learn)
