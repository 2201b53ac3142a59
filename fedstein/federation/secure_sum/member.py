"""The client's part of a secure sum: four phases, each a pure function from a state to a state and a message.

    keys      two fresh key pairs; their public halves are sent
    shares    a fresh seed b; encrypted shares of b and of the mask key, one for every client
    masked    x + mask(b) + sum over v > u of mask(s_uv) - sum over v < u of mask(s_uv)
    unmasked  for clients whose masked input the server has: the share of their b; for the others: the share of their
              mask key. Never both for one client, because together they would reveal its input.

A state is plain data, so that a client that is killed between phases can continue. A repeated phase with the same
request gives the same message; with another request it is refused.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedstein.errors import FedsteinError
from fedstein.federation.secure_sum import LEAST, least_threshold, shamir
from fedstein.federation.secure_sum.fixed_point import Words, add, subtract
from fedstein.federation.secure_sum.masks import Forged, agree, derive, mask, new_key, public_of, seal, unseal


class Misuse(FedsteinError):
    """A request of a secure sum that a client must not answer. The text says why."""


class Publics(NamedTuple):
    """A client's public keys: for sealing shares, and for masks."""

    seal: bytes
    mask: bytes


class Member(NamedTuple):
    """A client's state in one session."""

    session: str
    me: int
    seal_key: bytes
    mask_key: bytes
    self_seed: bytes
    threshold: int = 0
    publics: Mapping[int, Publics] = {}  # the public keys of all clients in the session
    sealed: Mapping[int, bytes] = {}  # the sealed shares that were sent to each of them
    inside: tuple[int, ...] = ()  # the clients whose masks are in the masked input
    received: Mapping[int, bytes] = {}  # the opened shares of each of them
    digest: str = ""  # a digest of the input that was masked
    survivors: tuple[int, ...] = ()  # the clients whose shares of b this client has revealed


def begin(session: str, me: int) -> Member:
    """Draw keys for a new session. ``publics_of`` is the message."""
    return Member(session, me, new_key(), new_key(), secrets.token_bytes(shamir.SECRET_BYTES))


def publics_of(member: Member) -> Publics:
    """The message of the phase ``keys``."""
    return Publics(public_of(member.seal_key), public_of(member.mask_key))


def share(member: Member, publics: Mapping[int, Publics], threshold: int) -> tuple[Member, Mapping[int, bytes]]:
    """The phase ``shares``.

    Args:
        member: The state.
        publics: The public keys of all clients in the session.
        threshold: How many clients must stay to the end.

    Returns:
        The new state, and the sealed shares for each of the others.

    Raises:
        Misuse: The session is too small, the threshold too low, a key occurs twice, or the client's own key is wrong.
    """
    if member.publics:
        if dict(member.publics) != dict(publics) or member.threshold != threshold:
            raise Misuse("the server names other clients than before in the same session")
        return member, member.sealed
    if publics.get(member.me) != publics_of(member):
        raise Misuse("the server does not have this client's own keys")
    if len(publics) < LEAST:
        raise Misuse(f"a secure sum needs at least {LEAST} clients, got {len(publics)}")
    if not least_threshold(len(publics)) <= threshold <= len(publics):
        raise Misuse(
            f"a threshold of {threshold} of {len(publics)} clients; expected at least {least_threshold(len(publics))}"
        )
    every = [key for each in publics.values() for key in each]
    if len(set(every)) < len(every) or min(publics) < 0:
        raise Misuse("two clients of the session have the same key")
    holders = sorted(publics)
    seeds = shamir.split(member.self_seed, threshold, holders)
    keys = shamir.split(member.mask_key, threshold, holders)
    sealed = {}
    for other in holders:
        if other != member.me:
            key = _seal_key(member, publics, other, sender=member.me)
            sealed[other] = seal(key, seeds[other] + keys[other], _about(member.session, member.me, other))
    own = {member.me: seeds[member.me] + keys[member.me]}
    new = member._replace(publics=dict(publics), threshold=threshold, sealed=sealed, received=own)
    return new, sealed


def mask_input(member: Member, sealed: Mapping[int, bytes], summand: Words) -> tuple[Member, Words]:
    """The phase ``masked``.

    Args:
        member: The state.
        sealed: The sealed shares that each of the others has sent to this client. A client that is missing has dropped
            out.
        summand: The fixed-point numbers to be summed, count x 2.

    Returns:
        The new state, and the masked input.

    Raises:
        Misuse: Too few clients are left, one is unknown, or a share was changed.
    """
    inside = tuple(sorted({*sealed, member.me}))
    digest = hashlib.sha256(np.ascontiguousarray(summand).tobytes()).hexdigest()
    if member.digest and member.inside != inside:
        raise Misuse("the server names other clients than before in the same session")
    if member.digest not in ("", digest):
        raise Misuse("the input has changed since it was masked; two inputs under one mask would show their difference")
    if not member.publics:
        raise Misuse("a masked input was asked for before shares were")
    if strangers := [client for client in inside if client not in member.publics]:
        raise Misuse(f"client {strangers[0]} is not in the session")
    if len(inside) < member.threshold:
        raise Misuse(f"{len(inside)} clients are left, fewer than the threshold of {member.threshold}")
    received = dict(member.received)
    total = add(summand, mask(derive(member.self_seed, f"self {member.session} {member.me}"), len(summand)))
    for other in inside:
        if other == member.me:
            continue
        try:
            key = _seal_key(member, member.publics, other, sender=other)
            received[other] = unseal(key, sealed[other], _about(member.session, other, member.me))
        except (Forged, ValueError) as error:
            raise Misuse(f"the share of client {other} cannot be opened: {error}") from None
        if len(received[other]) != 2 * shamir.SHARE_BYTES:
            raise Misuse(f"the share of client {other} has a wrong length")
        total = add_pair_mask(total, member.mask_key, member.me, other, member.publics[other].mask, member.session)
    return member._replace(inside=inside, received=received, digest=digest), total


def add_pair_mask(total: Words, private: bytes, me: int, other: int, public: bytes, session: str) -> Words:
    """Add or subtract the mask that client ``me`` shares with another client, which does the opposite."""
    common = mask(agree(private, public, "mask", session, me, other), len(total))
    return add(total, common) if me < other else subtract(total, common)


def unmask(member: Member, survivors: Sequence[int]) -> tuple[Member, Mapping[int, bytes], Mapping[int, bytes]]:
    """The phase ``unmasked``.

    Args:
        member: The state.
        survivors: The clients whose masked input the server has.

    Returns:
        The new state, the shares of the survivors' b, and the shares of the others' mask keys.

    Raises:
        Misuse: Too few clients survive, or the server named other survivors before.
    """
    named = tuple(sorted(set(survivors)))
    if not member.digest or member.me not in named:
        raise Misuse("this client's own masked input is not in the sum")
    if member.survivors and member.survivors != named:
        raise Misuse("the server names other survivors than before, which could reveal their inputs")
    if not set(named) <= set(member.inside):
        raise Misuse("the server names survivors that are not in the session")
    if len(named) < member.threshold:
        raise Misuse(
            f"{len(named)} clients survive, fewer than the threshold of {member.threshold}: nothing is revealed"
        )
    lost = [client for client in member.inside if client not in named]
    seeds = {client: member.received[client][: shamir.SHARE_BYTES] for client in named}
    keys = {client: member.received[client][shamir.SHARE_BYTES :] for client in lost}
    return member._replace(survivors=named), seeds, keys


def _seal_key(member: Member, publics: Mapping[int, Publics], other: int, sender: int) -> bytes:
    """The key for the one text from the sender to the receiver; each direction has its own key."""
    return agree(member.seal_key, publics[other].seal, f"seal from {sender}", member.session, member.me, other)


def _about(session: str, sender: int, reader: int) -> str:
    return f"{session} from {sender} to {reader}"
