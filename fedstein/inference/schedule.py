"""Schedules of the step size over the rounds of a run: a factor on ``algorithm.step_size``."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Schedule = Callable[[int], np.float32]  # round, from 1 -> factor
FLOOR = 0.02  # the cosine ends at this factor: steps still follow the data, but particles no longer oscillate


def constant(rounds: int) -> Schedule:
    """The paper's schedule: the same step in every round."""
    return lambda number: np.float32(1.0)


def cosine(rounds: int) -> Schedule:
    """A schedule that falls from 1 in the first round to ``FLOOR`` in the last, along half a cosine."""

    def factor(number: int) -> np.float32:
        return np.float32(FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * (number - 1) / max(rounds - 1, 1))))

    return factor


SCHEDULES: dict[str, Callable[[int], Schedule]] = {"constant": constant, "cosine": cosine}
