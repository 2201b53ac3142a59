"""A node's part in secure sums: the node sends its summands only with masks.

The state of the session, private keys included, is in the node's state folder, so that a node that is killed in any
phase can continue. A new session of the run replaces the last one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from fedstein.federation.secure_sum import shamir
from fedstein.federation.secure_sum.member import Member, Misuse, begin, mask_input, publics_of, share, unmask
from fedstein.federation.secure_sum.wire import (
    PHASES,
    SEALED_BYTES,
    flatten,
    from_json,
    read_publics,
    read_rows,
    rows_of,
    to_json,
    write_publics,
)
from fedstein.files import write_bytes
from fedstein.flower.messages import SETUP, Envelope, Head, InvalidMessage, value, with_prefix
from fedstein.flower.node.store import Store
from fedstein.inference.sites.base import Arrays

OF = "of/"  # prefix of the arrays that the summand is computed from
STATE = "secure-sum.json"


def answer_phase(request: Envelope, store: Store, compute: Callable[[Envelope, Member], Arrays]) -> Arrays:
    """Answer one phase of a secure sum.

    Args:
        request: The request of the server.
        store: The node's state of the run.
        compute: Computes the summand from the corresponding plain request and the state of the sum.

    Returns:
        The arrays of the reply.

    Raises:
        InvalidMessage: The request cannot be read.
        Misuse: The request must not be answered.
        OutOfRange: A number of the summand is too large for fixed point.
    """
    phase, session = value(request.head, "phase", str), value(request.head, "session", str)
    if phase not in PHASES:
        raise InvalidMessage(f"unknown phase {phase!r:.40} of a secure sum; expected one of {', '.join(PHASES)}")
    if not session.isalnum() or len(session) > 64:
        raise InvalidMessage(f"expected a session in letters and digits, got {session!r:.80}")
    session = f"{store.run} {value(request.head, 'of', str)} {value(request.head, 'round', int)} {session}"
    if phase == "masked":  # before the lock, because the computation takes it too
        member, sealed = read_state(store, session), read_sealed(request.arrays)
        summand = flatten(compute(plain_request(request), member), len(member.publics))
    with store.locked():
        if phase == "keys":
            return {"keys": write_publics(publics_of(open_session(store, session)))}
        member = read_state(store, session)
        if phase == "shares":
            order = clients_of(request.arrays, "ids")
            publics = {client: read_publics(row) for client, row in zip(order, table(request, "keys", 64), strict=True)}
            member, sent = share(member, publics, value(request.head, "threshold", int))
            write_state(store, member)
            return {"shares": rows_of(sent, order, SEALED_BYTES)}
        if phase == "masked":
            member, masked = mask_input(member, sealed, summand)
            write_state(store, member)
            return {"masked": masked}
        member, seeds, keys = unmask(member, clients_of(request.arrays, "survivors"))
        write_state(store, member)
        return {
            name: rows_of(each, sorted(each), shamir.SHARE_BYTES) for name, each in (("seeds", seeds), ("keys", keys))
        }


def plain_request(request: Envelope) -> Envelope:
    """The plain request whose reply is the summand."""
    head: Head = {**request.head, "kind": value(request.head, "of", str)}
    setup = {SETUP + name: array for name, array in with_prefix(request.arrays, SETUP).items()}
    return Envelope(head, {**with_prefix(request.arrays, OF), **setup})


def open_session(store: Store, session: str) -> Member:
    """The state of the session. It is made now if it does not exist."""
    try:
        return read_state(store, session)
    except Misuse:
        member = begin(session, store.client)
        write_state(store, member)
        return member


def read_state(store: Store, session: str) -> Member:
    """The state of the session.

    Raises:
        Misuse: The node is not in this session.
    """
    try:
        member = from_json(_file(store).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise Misuse("this node is not in that secure sum, or has lost its state of it") from None
    if (member.session, member.me) != (session, store.client):
        raise Misuse("this node is in another secure sum by now")
    return member


def write_state(store: Store, member: Member) -> None:
    """Write the state atomically, before the node sends anything that depends on it."""
    store.folder.mkdir(parents=True, exist_ok=True)
    write_bytes(_file(store), to_json(member).encode())
    os.chmod(_file(store), 0o600)


def _file(store: Store) -> Path:
    return store.folder / STATE


def read_sealed(arrays: Mapping[str, np.ndarray]) -> dict[int, bytes]:
    """Return the sealed shares that the other clients have sent to this node."""
    order = clients_of(arrays, "senders")
    found = arrays.get("shares")
    if found is None or found.dtype != np.uint8 or found.shape != (len(order), SEALED_BYTES):
        raise InvalidMessage("expected the sealed shares of every sender")
    return read_rows(found, order)


def clients_of(arrays: Mapping[str, np.ndarray], name: str) -> list[int]:
    """The ids of clients in a request, each once and in order."""
    found = arrays.get(name)
    if found is None or found.ndim != 1 or found.dtype != np.int64 or (np.diff(found) <= 0).any():
        raise InvalidMessage(f"expected {name!r} as the ids of clients in ascending order")
    return [int(client) for client in found]


def table(request: Envelope, name: str, width: int) -> np.ndarray:
    """A table of bytes in a request, one row for each client of ``ids``."""
    found = request.arrays.get(name)
    if found is None or found.dtype != np.uint8 or found.shape != (len(clients_of(request.arrays, "ids")), width):
        raise InvalidMessage(f"expected {name!r} as {width} bytes of each client")
    return found
