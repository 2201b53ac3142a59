"""The server's part of a secure sum: it computes the sum, and nothing else, from masked inputs and shares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedstein.errors import FedsteinError
from fedstein.federation.secure_sum import shamir
from fedstein.federation.secure_sum.fixed_point import Words, add, subtract
from fedstein.federation.secure_sum.masks import derive, mask, public_of
from fedstein.federation.secure_sum.member import Publics, add_pair_mask

Shares = Mapping[int, Mapping[int, bytes]]  # client that answered -> its share of each client's secret


class TooFew(FedsteinError):
    """Fewer clients than the threshold are left, so the sum cannot be found."""


def unmasked_sum(
    session: str,
    publics: Mapping[int, Publics],
    masked: Mapping[int, Words],
    inside: tuple[int, ...],
    seeds: Shares,
    keys: Shares,
    threshold: int,
) -> Words:
    """Remove the masks from the sum of the masked inputs.

    Args:
        session: The session.
        publics: The public keys of all clients in the session.
        masked: The masked inputs that arrived, by client. These clients are the survivors.
        inside: The clients whose pairwise masks are in the inputs.
        seeds: A client that answered -> its shares of the survivors' seeds b.
        keys: A client that answered -> its shares of the mask keys of the clients inside whose input did not arrive.
        threshold: The number of answers that are needed.

    Returns:
        The sum of the survivors' inputs.

    Raises:
        TooFew: Fewer clients answered than the threshold.
        FedsteinError: Shares do not belong together.
    """
    if min(len(masked), len(seeds)) < threshold:
        raise TooFew(f"{min(len(masked), len(seeds))} clients stayed to the end; {threshold} are needed")
    (count,) = {len(each) for each in masked.values()}
    total: Words = np.zeros((count, 2), np.uint64)
    for each in masked.values():
        total = add(total, each)
    for client in masked:
        seed = recover({holder: shares[client] for holder, shares in seeds.items()}, f"the seed of client {client}")
        total = subtract(total, mask(derive(seed, f"self {session} {client}"), count))
    for lost in (client for client in inside if client not in masked):
        private = recover({holder: shares[lost] for holder, shares in keys.items()}, f"the mask key of client {lost}")
        if public_of(private) != publics[lost].mask:
            raise FedsteinError(f"the shares of the mask key of client {lost} do not give its key")
        for other in masked:  # remove the masks that the others share with the lost client
            total = add_pair_mask(total, private, lost, other, publics[other].mask, session)
    return total


def recover(shares: Mapping[int, bytes], what: str) -> bytes:
    """Combine shares.

    Raises:
        FedsteinError: The shares do not belong together.
    """
    try:
        return shamir.combine(shares)
    except ValueError as error:
        raise FedsteinError(f"{what} cannot be found: {error}") from None
