"""Predicting which candidates will be drawn, so that they can train before the draw (``selection.speculate``).

The random numbers of a draw come from the seed, so they are known before the reports are. A draw with the indicators of
earlier rounds and this round's random numbers gives the actual draw if the indicators have hardly changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedstein.selection.base import Memory, Scheme

INDICATORS = "indicators"  # the entry of a run's memory that holds the last indicator of each client


def predict_selected(
    scheme: Scheme, memory: Memory, candidates: Sequence[int], numbers: np.ndarray, count: int
) -> list[int]:
    """Predict the draw from the last indicators. A client that was never asked gets the median indicator.

    Args:
        scheme: The scheme that draws.
        memory: The memory of the run.
        candidates: The clients that may be selected.
        numbers: The random numbers of this round's draw.
        count: The number of clients to return.

    Returns:
        At most that many candidates, the likeliest first.
    """
    if not count:
        return []
    known = memory.get(INDICATORS, {})
    typical = float(np.median(list(known.values()))) if known else 1.0
    guessed = [known.get(str(client), typical) for client in candidates]
    return scheme.draw(memory, candidates, guessed, numbers).order[:count]


def remember_indicators(memory: Memory, candidates: Sequence[int], values: Sequence[float | None]) -> dict[str, Any]:
    """Return the entry of the memory that ``predict_selected`` reads.

    Args:
        memory: The memory of the run before this round.
        candidates: The clients that were asked.
        values: Their indicators; None if no report counts.

    Returns:
        The last indicator of every client that was ever asked, by its id.
    """
    known: Mapping[str, float] = memory.get(INDICATORS, {})
    new = {str(k): float(value) for k, value in zip(candidates, values, strict=True) if value is not None}
    return {INDICATORS: {**known, **new}}
