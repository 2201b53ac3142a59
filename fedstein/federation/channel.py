"""The channel: every array between server and clients goes through it, in process and on a network alike.

It encodes outgoing messages, decodes incoming ones and counts the bytes of a round. It also remembers which arrays
clients already have, so that the same array is not sent twice. Both engines compute from decoded arrays, so their
results are equal bit for bit. Evaluation and set-up messages contain sums, which are sent unencoded and counted
separately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from fedstein.federation.codecs import Codec, Layout, MessageInfo
from fedstein.federation.packing import pack, unpack
from fedstein.inference.sites.base import Arrays
from fedstein.settings import Settings

NOTHING: Mapping[str, Any] = MappingProxyType({})  # the arrays of a receiver that has received nothing yet
POINTS = MessageInfo._field_defaults["points"]
ALL_CLIENTS = -1  # the client id in the ``MessageInfo`` of a broadcast


class ChannelSettings(Settings):
    """The keys of ``[channel]``."""

    codec: str = Field("plain", description="How arrays are written on the wire.")
    broadcast: str = Field("", description="The codec of broadcasts to candidates; empty means channel.codec.")
    report: str = Field("", description="The codec of reports; empty means channel.codec.")
    assignment: str = Field("", description="The codec of assignments (for training); empty means channel.codec.")
    update: str = Field("", description="The codec of updates; empty means channel.codec.")
    packing: Literal["none", "deflate"] = Field(
        "none",
        description="Whether a Huffman code packs encoded arrays. It saves bytes, takes time and loses nothing.",
    )

    def codec_of(self, kind: str) -> str:
        """The name of the codec for messages of this kind."""
        return getattr(self, kind) or self.codec


KINDS = ("broadcast", "report", "assignment", "update")


def size_of(arrays: Mapping[str, Any]) -> int:
    """The array bytes of a message."""
    return sum(int(array.nbytes) for array in arrays.values())


class Wire(NamedTuple):
    """A codec for each kind of message, and the facts that all messages of a run share. Server and clients have one."""

    codecs: Mapping[str, Codec]  # the codec of each kind of message
    seed: int
    precision: str
    layout: Layout = ()
    natural: tuple[str, str] = ("", "")
    packing: str = "none"

    def encode(
        self, kind: str, round_index: int, client: int, arrays: Arrays, reference: Mapping[str, Any] = NOTHING
    ) -> Arrays:
        """Encode the arrays of a message; ``reference`` has the decoded arrays that the receiver already has."""
        encoded = self.codecs[kind].encode(arrays, self._info(kind, round_index, client, reference))
        return encoded if self.packing == "none" else pack(encoded)

    def decode(
        self, kind: str, round_index: int, client: int, arrays: Arrays, reference: Mapping[str, Any] = NOTHING
    ) -> Arrays:
        """Decode a message."""
        return self.decode_unpacked(kind, round_index, client, self.unpack(arrays), reference)

    def decode_unpacked(
        self, kind: str, round_index: int, client: int, arrays: Arrays, reference: Mapping[str, Any] = NOTHING
    ) -> Arrays:
        """Decode a message that ``unpack`` has unpacked."""
        return self.codecs[kind].decode(arrays, self._info(kind, round_index, client, reference))

    def unpack(self, arrays: Arrays) -> Arrays:
        """Undo the packing of a message; the result is still encoded."""
        return arrays if self.packing == "none" else as_jax_arrays(unpack(arrays))

    def _info(self, kind: str, round_index: int, client: int, reference: Mapping[str, Any]) -> MessageInfo:
        return MessageInfo(
            kind, self.seed, round_index, client, self.precision, self.layout, self.natural, reference=reference
        )


def as_jax_arrays(arrays: Arrays) -> Arrays:
    """Convert arrays to JAX arrays, except arrays of 64 bits that JAX would narrow to 32 bits."""
    return {
        name: jnp.asarray(array) if jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype else array
        for name, array in arrays.items()
    }


def without_held(encoded: Arrays, held: Mapping[str, Any]) -> Arrays:
    """Leave out the arrays of a message that the receiver already has, bit for bit.

    Args:
        encoded: The encoded message.
        held: The encoded arrays that the receiver has.

    Returns:
        The arrays that must be sent.
    """
    return {name: array for name, array in encoded.items() if not (name in held and same_bits(array, held[name]))}


def is_finite(arrays: Arrays) -> bool:
    """Whether every number of a message is finite. The check runs in NumPy, so that nothing has to be compiled."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = (np.asarray(array) for array in arrays.values())
        return all(bool(np.isfinite(np.sum(array)) or np.all(np.isfinite(array))) for array in found)


def same_bits(one: Any, other: Any) -> bool:
    """Whether two arrays have the same shape, dtype and bytes."""
    one, other = np.asarray(one), np.asarray(other)
    return (one.shape, one.dtype) == (other.shape, other.dtype) and one.tobytes() == other.tobytes()


class Broadcast(NamedTuple):
    """One broadcast in three forms: the server's arrays, the encoded arrays, and the arrays that clients decode."""

    original: Arrays
    wire: Arrays
    received: Arrays


class Assigned(NamedTuple):
    """The input of training in two forms: the server's arrays, and the arrays that the client decodes."""

    original: Arrays
    received: Arrays


class Channel:
    """The server's end. ``down`` and ``up`` count the array bytes of the current round, without repeated messages."""

    def __init__(self, wire: Wire):
        self.wire = wire
        self.down = self.up = 0
        self._round = 0
        self._broadcast: Broadcast | None = None
        self._assigned: dict[int, Assigned] = {}  # by client that trains

    def begin(self, round_index: int) -> None:
        """Start counting a new round, in which no client has received anything yet."""
        self._round, self._broadcast = round_index, None
        self._assigned = {}
        self.down = self.up = 0

    def broadcast(self, arrays: Arrays, candidates: Sequence[int], held: Mapping[str, Any] = NOTHING) -> Broadcast:
        """Encode a broadcast once and count it for every candidate.

        Args:
            arrays: The arrays that the candidates need.
            candidates: The clients that receive it.
            held: The encoded arrays that they already have. An equal array of the broadcast is not counted again.

        Returns:
            The broadcast in its three forms.
        """
        encoded = self.wire.encode("broadcast", self._round, ALL_CLIENTS, arrays)
        received = self.wire.decode("broadcast", self._round, ALL_CLIENTS, encoded)
        self._broadcast = Broadcast(arrays, encoded, received)
        self.down += len(candidates) * size_of(without_held(encoded, held))
        return self._broadcast

    def assignment(self, client: int, arrays: Arrays) -> tuple[Arrays, Arrays]:
        """Encode the input of training, without the arrays that the client has from this round's broadcast.

        Args:
            client: The client's id.
            arrays: The arrays that the client needs. An array that is the same object as in the broadcast is not sent
                again.

        Returns:
            The encoded message, and the encoded broadcast if training uses part of it, otherwise an empty mapping.
        """
        held = self._broadcast.original if self._broadcast is not None else {}
        known = {name for name, array in arrays.items() if held.get(name) is array}
        needed = {name: array for name, array in arrays.items() if name not in known}
        used = self._broadcast if known else None
        reference = used.received if used is not None else NOTHING
        encoded = self.wire.encode("assignment", self._round, client, needed, reference)
        self.down += size_of(encoded)
        received = self.wire.decode("assignment", self._round, client, encoded, reference)
        self._assigned[client] = Assigned(arrays, {**reference, **received})
        return encoded, used.wire if used is not None else {}

    def receive(self, kind: str, client: int, arrays: Arrays) -> Arrays:
        """Count and decode a reply.

        Args:
            kind: ``"report"`` or ``"update"``.
            client: The client that sent it.
            arrays: The encoded reply.

        Returns:
            The decoded arrays.
        """
        self.up += size_of(arrays)
        assigned = self._assigned.get(client) if kind == "update" else None
        reference = assigned.received if assigned is not None else NOTHING
        return self.wire.decode(kind, self._round, client, arrays, reference)

    def count_unused(self, arrays: Arrays) -> None:
        """Count the bytes of a reply that is not used."""
        self.up += size_of(arrays)

    def without_rounding(self, client: int, update: Arrays) -> Arrays:
        """Correct an update for the rounding of the points that the client started from.

        The client starts from the decoded points theta + n, with the rounding error n of the codec, and moves to
        theta'. The server applies the move to its own points, theta' - n, so that rounding errors do not add up over
        rounds.

        Args:
            client: The client that trained.
            update: Its update as ``receive`` returned it.

        Returns:
            The update to apply. It is unchanged if the codec is exact or the update has no such points.
        """
        assigned = self._assigned.get(client)
        if assigned is None or POINTS not in update or POINTS not in assigned.received:
            return update
        before, heard = assigned.original.get(POINTS), assigned.received[POINTS]
        if before is None or before is heard or np.shape(before) != np.shape(update[POINTS]):
            return update
        return {**update, POINTS: update[POINTS] + (jnp.asarray(before) - heard)}

    @property
    def sent(self) -> Arrays:
        """This round's encoded broadcast; empty if there was none."""
        return self._broadcast.wire if self._broadcast is not None else {}

    def as_decoded(self, arrays: Arrays) -> Arrays:
        """Return the server's arrays, with those of this round's broadcast as the clients decoded them."""
        return {**arrays, **self._broadcast.received} if self._broadcast is not None else arrays
