"""The required form of reports and updates at the server, found by tracing them, and checks of those that arrive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedstein.data.shard import Shard
from fedstein.errors import InputError
from fedstein.federation.channel import ALL_CLIENTS, Wire, as_jax_arrays
from fedstein.federation.client import ClientProgram
from fedstein.federation.packing import PACKED, largest
from fedstein.flower.messages import DTYPES, InvalidMessage, Shapes, check_arrays, shapes_of
from fedstein.inference.methods.base import Training
from fedstein.inference.sites.base import Arrays, State
from fedstein.inference.target import SharedTarget, Target


class Form(NamedTuple):
    """The required form of a reply of one kind: as it is sent, as the codec wrote it, and as the server decodes it.

    The first two differ if messages are packed.
    """

    on_wire: Shapes
    encoded: Shapes
    decoded: Shapes


def undecodable(wire: Wire, kind: str, round_index: int, form: Form, client: int, arrays: Arrays) -> str:
    """Find out why the server cannot use a reply that has the right form on the wire.

    Args:
        wire: The codec of the run.
        kind: ``"report"`` or ``"update"``.
        round_index: The round, from 1.
        form: The required form of the reply.
        client: The client that sent the reply.
        arrays: The encoded reply.

    Returns:
        The reason, or an empty text if there is none.
    """
    try:
        with np.errstate(all="ignore"):
            encoded = wire.unpack(as_jax_arrays(arrays))
            if wire.packing != "none":  # without packing, the shapes have been checked already
                check_arrays(encoded, form.encoded, lambda right: "")
            received = wire.decode_unpacked(kind, round_index, client, encoded)
            check_arrays({name: np.asarray(array) for name, array in received.items()}, form.decoded)
    except InvalidMessage as error:
        return str(error)
    except Exception as error:  # a codec may be a plug-in that fails on invalid bytes in any way
        return f"the codec {wire.codecs[kind].name!r} cannot decode its {kind}: {type(error).__name__}: {error!s:.200}"
    return ""


def _example(program: ClientProgram, inputs: int) -> Shard:
    """A small shard of the form that the model gets, used only for its shapes."""
    labels = np.zeros(8, np.int32 if program.model.task == "classification" else np.float32)
    return program.shard(np.zeros((8, inputs), np.float32), labels)


def report_form(program: ClientProgram, inputs: int) -> Form:
    """Return the required form of a report. It is found by tracing the report function, without running it.

    Args:
        program: The clients' program.
        inputs: The number of columns of a client's rows.

    Returns:
        The form of a report; an empty one if the scheme asks for none.

    Raises:
        InputError: The codec writes arrays that cannot be sent over Flower.
    """
    scheme, method = program.scheme, program.method
    if scheme.report is None or method.protection is not None:  # in a private run the server computes the indicators
        return Form({}, {}, {})
    broadcast = method.broadcast(program.first_server, scheme.uses)
    key = jax.random.key(0)

    def report(received: Arrays, state: State, shard: Shard) -> Arrays:
        assert scheme.report is not None
        shared = SharedTarget(method.spec, received)
        target = Target(method.spec, shared.terms(scheme.uses), key, state, shard, 0)
        return scheme.report(target, scheme.prepare(shared))

    return form_of(program, "report", jax.eval_shape(report, broadcast, program.first_state, _example(program, inputs)))


def update_form(program: ClientProgram, inputs: int) -> Form:
    """Return the required form of an update.

    Args:
        program: The clients' program.
        inputs: The number of columns of a client's rows.

    Returns:
        The form of an update.

    Raises:
        InputError: The codec writes arrays that cannot be sent over Flower.
    """
    method = program.method
    if method.protection is not None:
        return form_of(program, "update", program.first_state)
    assigned = method.assign(program.first_server, None)
    key, scale = jax.random.key(0), jnp.asarray(program.schedule(1))

    def train(received: Arrays, state: State, shard: Shard) -> Arrays:
        return method.train(Training(key, received, state, shard, True, scale))[0]

    return form_of(program, "update", jax.eval_shape(train, assigned, program.first_state, _example(program, inputs)))


def form_of(program: ClientProgram, kind: str, shapes: Mapping[str, Any]) -> Form:
    """Find the form of a message whose arrays have these shapes and dtypes before they are encoded.

    By the contract of a codec, encoded and decoded shapes depend only on these, so arrays of zeros are enough.
    """
    zeros = {name: np.zeros(array.shape, array.dtype) for name, array in shapes.items()}
    wire = program.wire
    sent = wire.encode(kind, 0, ALL_CLIENTS, zeros)
    encoded = wire.unpack(sent)
    for name, array in encoded.items():
        if str(array.dtype) not in DTYPES:
            raise InputError(
                f"channel.codec = {wire.codecs[kind].name!r} writes {name!r} as {array.dtype}, which does not "
                f"travel over Flower; expected one of: {', '.join(DTYPES)}"
            )
    packed = {PACKED: ((-largest(encoded),), "uint8")}
    on_wire = shapes_of(encoded) if wire.packing == "none" else packed
    return Form(on_wire, shapes_of(encoded), shapes_of(wire.decode(kind, 0, ALL_CLIENTS, sent)))
