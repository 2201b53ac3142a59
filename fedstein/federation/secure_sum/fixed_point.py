"""Fixed-point numbers modulo 2^128: sums of them are exact, and a uniform mask hides them.

A number x becomes the whole number round(x 2^FRACTION) modulo 2^128, in two's complement, as two 64-bit words: the
lower one first. K summands that are below 2^127 / K in absolute value cannot wrap; anything larger is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedstein.errors import InputError

FRACTION = 60  # binary digits after the point
WORD = 64

Words = NDArray[np.uint64]  # (..., 2)


class OutOfRange(InputError):
    """A number that does not fit, so that the sum could be wrong."""


def largest(clients: int) -> float:
    """The bound on the absolute value of each summand, for this number of summands."""
    return 2.0 ** (2 * WORD - 1 - FRACTION) / clients


def encode(values: Any, clients: int) -> Words:
    """Encode numbers in fixed point.

    Args:
        values: An array of numbers.
        clients: The largest possible number of summands.

    Returns:
        Two words for each number: an array with a further last axis of 2.

    Raises:
        OutOfRange: A number is not finite, or too large for the sum to be right.
    """
    plain = np.asarray(values, np.float64)
    if not np.isfinite(plain).all():
        raise OutOfRange("a secure sum takes finite numbers, got NaN or infinity")
    if plain.size and (most := float(np.abs(plain).max())) >= largest(clients):
        raise OutOfRange(
            f"a secure sum over {clients} clients takes numbers below {largest(clients):.3g}, got one of {most:.3g}; "
            "use other units for the column"
        )
    whole = np.rint(np.ldexp(np.abs(plain), FRACTION))
    high = np.floor(np.ldexp(whole, -WORD))
    low = whole - np.ldexp(high, WORD)  # exact, because these are the lower digits of the 53 that ``whole`` has
    words = np.stack([low, high], axis=-1).astype(np.uint64)
    return np.where((plain < 0)[..., None], negate(words), words)


def decode(words: Words) -> NDArray[np.float64]:
    """Decode fixed-point numbers to float64: exact up to the last binary digit and the rounding of float64."""
    negative = (words[..., 1] >> np.uint64(WORD - 1)).astype(bool)
    size = np.where(negative[..., None], negate(words), words)
    found = np.ldexp(size[..., 1].astype(np.float64), WORD - FRACTION)
    found = found + np.ldexp(size[..., 0].astype(np.float64), -FRACTION)
    return np.where(negative, -found, found)


def add(one: Words, other: Words) -> Words:
    """The sum modulo 2^128."""
    low = one[..., 0] + other[..., 0]
    carry = (low < one[..., 0]).astype(np.uint64)
    return np.stack([low, one[..., 1] + other[..., 1] + carry], axis=-1)


def negate(words: Words) -> Words:
    """The number that adds up to 0 with this one, modulo 2^128."""
    one = np.zeros_like(words)
    one[..., 0] = 1
    return add(~words, one)


def subtract(one: Words, other: Words) -> Words:
    """The difference modulo 2^128."""
    return add(one, negate(other))
