"""The contract of a codec: how the arrays of a message are encoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fedstein.inference.sites.base import Arrays

# The blocks of a particle in their order: the width of each, and the number of columns of a block that multiplies the
# inputs (outputs x inputs), 0 for other blocks.
Layout = tuple[tuple[int, int], ...]


class MessageInfo(NamedTuple):
    """Facts about a message that a codec may use besides its arrays. Both ends know them, so they are never sent.

    Attributes:
        kind: ``"broadcast"``, ``"report"``, ``"assignment"`` or ``"update"``.
        seed: The seed of the run.
        round: The round, from 1.
        client: The client; -1 for a broadcast, which is the same for all clients.
        precision: The type of decoded arrays, ``"float32"`` or ``"float64"``.
        layout: The blocks of a particle; empty if there are no particles.
        natural: The names of a Gaussian site's shift and precision for each particle; empty names if there are none.
        points: The name of the points (particles).
        reference: The decoded arrays that the receiver already has.
    """

    kind: str
    seed: int
    round: int
    client: int
    precision: str
    layout: Layout = ()
    natural: tuple[str, str] = ("", "")
    points: str = "particles"
    reference: Mapping[str, Any] = MappingProxyType({})


class Codec(NamedTuple):
    """One way to encode arrays.

    Encoded shapes must depend on the shapes of the arrays alone, never on their values: the server refuses replies of
    other shapes before it decodes them. Randomness (stochastic rounding) comes from the seed by ``fold_in`` of round
    and client, so that both engines write the same bytes.

    Attributes:
        name: The value of ``channel.codec``.
        about: One line that says what the codec does.
        encode: Named arrays, ``MessageInfo`` -> encoded named arrays.
        decode: The inverse, which need not be exact.
    """

    name: str
    about: str
    encode: Callable[[Arrays, MessageInfo], Arrays]
    decode: Callable[[Arrays, MessageInfo], Arrays]
