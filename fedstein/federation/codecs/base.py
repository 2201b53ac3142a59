"""The contract of a codec: how the arrays of a message look on the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fedstein.inference.sites.base import Arrays


class MessageInfo(NamedTuple):
    """What a codec may know of a message besides its arrays. Both ends know it, so it never travels."""

    kind: str  # "broadcast", "report", "assignment" or "update"
    seed: int
    round: int
    client: int  # -1 for a broadcast, which is the same for everybody
    precision: str  # "float32" or "float64": what decoded arrays must be


class Codec(NamedTuple):
    """One way to write arrays.

    Encoded shapes must depend on the shapes of the arrays alone, never on their values: the server refuses replies of
    other shapes before it decodes them. Randomness (stochastic rounding) comes from the seed by ``fold_in`` of round
    and client, so that both engines write the same bytes.

    Attributes:
        name: The value of ``channel.codec``.
        about: One line that says what the codec does.
        encode: Named arrays, ``MessageInfo`` -> named arrays as they travel.
        decode: The inverse, exact or not.
    """

    name: str
    about: str
    encode: Callable[[Arrays, MessageInfo], Arrays]
    decode: Callable[[Arrays, MessageInfo], Arrays]
