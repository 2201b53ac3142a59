"""The channel: every array between server and clients goes through it, in process and on a network alike.

It encodes what leaves and decodes what arrives, counts the bytes of a round, and remembers what clients hold already,
so that the same array is not sent twice. Both engines compute from what came out of the channel, so they stay equal
bit for bit. Evaluation and set-up messages hold sums, which travel as they are and are counted apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from fedstein.federation.codecs import Codec, MessageInfo
from fedstein.inference.sites.base import Arrays
from fedstein.settings import Settings

EVERYBODY = -1  # the client id in the ``MessageInfo`` of a broadcast


class ChannelSettings(Settings):
    """The keys of ``[channel]``."""

    codec: str = Field("plain", description="How arrays are written on the wire.")


def size_of(arrays: Mapping[str, Any]) -> int:
    """The array bytes of a message."""
    return sum(int(array.nbytes) for array in arrays.values())


class Wire(NamedTuple):
    """A codec with what every message of a run has in common. Clients have one too."""

    codec: Codec
    seed: int
    precision: str

    def encode(self, kind: str, round_index: int, client: int, arrays: Arrays) -> Arrays:
        """The arrays as they travel."""
        return self.codec.encode(arrays, MessageInfo(kind, self.seed, round_index, client, self.precision))

    def decode(self, kind: str, round_index: int, client: int, arrays: Arrays) -> Arrays:
        """The arrays that the receiver computes from."""
        return self.codec.decode(arrays, MessageInfo(kind, self.seed, round_index, client, self.precision))


class Broadcast(NamedTuple):
    """One broadcast: as the server had it, as it travelled, and as clients received it."""

    original: Arrays
    wire: Arrays
    received: Arrays


class Channel:
    """The server's end. ``down`` and ``up`` count the array bytes of the current round, first deliveries only."""

    def __init__(self, wire: Wire):
        self.wire = wire
        self.down = self.up = 0
        self._round = 0
        self._broadcast: Broadcast | None = None

    def begin(self, round_index: int) -> None:
        """Start counting a new round. Nobody holds anything yet."""
        self._round, self._broadcast = round_index, None
        self.down = self.up = 0

    def broadcast(self, arrays: Arrays, candidates: Sequence[int]) -> Broadcast:
        """Encode a broadcast once and count it for every candidate.

        Args:
            arrays: What the candidates need.
            candidates: The clients that it goes to.

        Returns:
            The broadcast in all its forms.
        """
        encoded = self.wire.encode("broadcast", self._round, EVERYBODY, arrays)
        received = self.wire.decode("broadcast", self._round, EVERYBODY, encoded)
        self._broadcast = Broadcast(arrays, encoded, received)
        self.down += len(candidates) * size_of(encoded)
        return self._broadcast

    def assignment(self, client: int, arrays: Arrays) -> tuple[Arrays, Arrays]:
        """Encode what a client needs to train, without the arrays that it holds from this round's broadcast.

        Args:
            client: The client's id.
            arrays: What the client needs. An array that is the very object of the broadcast is not sent again.

        Returns:
            The message as it travels, and the broadcast as it travelled where part of it is used, else nothing.
        """
        held = self._broadcast.original if self._broadcast is not None else {}
        known = {name for name, array in arrays.items() if held.get(name) is array}
        needed = {name: array for name, array in arrays.items() if name not in known}
        encoded = self.wire.encode("assignment", self._round, client, needed)
        self.down += size_of(encoded)
        cached = self._broadcast.wire if known and self._broadcast is not None else {}
        return encoded, cached

    def receive(self, kind: str, client: int, arrays: Arrays) -> Arrays:
        """Count and decode a reply.

        Args:
            kind: ``"report"`` or ``"update"``.
            client: The client that sent it.
            arrays: The reply as it travelled.

        Returns:
            The arrays that the server computes from.
        """
        self.up += size_of(arrays)
        return self.wire.decode(kind, self._round, client, arrays)
