"""Checks of the arguments of ``Posterior``'s methods: a wrong one is refused with a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedstein.errors import InputError

MOST_DRAWS = 10**7  # more would not fit into memory
LARGEST_SEED = 2**32 - 1  # JAX's keys take 32 bits


def check_draws(n: Any) -> None:
    """Refuse a number of draws that is none.

    Args:
        n: What was passed.

    Raises:
        InputError: It is no whole number from 1, or too large.
    """
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
        raise InputError(f"expected at least one draw, a whole number, got {shown(n)}")
    if n > MOST_DRAWS:
        raise InputError(f"expected at most {MOST_DRAWS} draws, got {n}; a few thousand give intervals")


def check_seed(seed: Any) -> None:
    """Refuse a seed that cannot seed the draws.

    Args:
        seed: What was passed.

    Raises:
        InputError: It is no whole number from 0 that has 32 bits.
    """
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"expected a seed from 0 to {LARGEST_SEED}, a whole number, got {shown(seed)}")


def check_level(level: Any, about: str) -> None:
    """Refuse the level of an interval that is no probability.

    Args:
        level: What was passed.
        about: What the interval is about, for the message; empty for nothing.

    Raises:
        InputError: It is no number between 0 and 1.
    """
    if not isinstance(level, (int, float, np.number)) or isinstance(level, bool) or not 0 < level < 1:
        raise InputError(f"expected a level between 0 and 1, got {shown(level)}{about and '; '}{about}")


def shown(value: Any) -> str:
    """Return a wrong argument as a message shows it; of something long, only the type."""
    return repr(value) if isinstance(value, (int, float, str, type(None))) else type(value).__name__
