"""Random: every client with the same probability, without replacement within a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedstein.selection.base import Draw, Scheme, no_broadcast, no_memory, no_survey


def random() -> Scheme:
    def draw(memory: dict[str, Any], candidates: Sequence[int], indicators: None, draws: np.ndarray) -> Draw:
        return Draw([candidates[i] for i in np.argsort(draws)], None)

    return Scheme("random", no_broadcast, no_survey, None, None, no_memory, draw, no_memory)
