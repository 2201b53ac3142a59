"""Shamir's secret sharing over the prime field of 2^521 - 1: t shares give the secret, fewer reveal nothing about it.

The secret is the value at 0 of a random polynomial of degree t - 1, and the share of holder i is its value at i + 1.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

PRIME = 2**521 - 1
SHARE_BYTES = 66
SECRET_BYTES = 32


def split(secret: bytes, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
    """Share a secret.

    Args:
        secret: 32 bytes.
        threshold: How many shares are needed.
        holders: The ids of the clients that get a share, from 0, without repetition.

    Returns:
        The share of each holder.

    Raises:
        ValueError: The secret, the threshold or the ids are impossible.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= len(holders):
        raise ValueError(f"expected 32 bytes and at most {len(holders)} shares, got {len(secret)} and {threshold}")
    if len(set(holders)) < len(holders) or min(holders) < 0:
        raise ValueError(f"expected different ids from 0, got {list(holders)}")
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    shares = {}
    for holder in holders:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * (holder + 1) + coefficient) % PRIME
        shares[holder] = value.to_bytes(SHARE_BYTES, "big")
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Compute the secret from at least as many shares as the threshold.

    Args:
        shares: Shares by their holders.

    Returns:
        The secret.

    Raises:
        ValueError: The shares do not belong together, or are too few.
    """
    points = {holder + 1: int.from_bytes(share, "big") for holder, share in shares.items()}
    secret = 0
    for x, y in points.items():
        above = below = 1
        for other in points:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        secret = (secret + y * above * pow(below, -1, PRIME)) % PRIME
    if secret >= 1 << (8 * SECRET_BYTES):  # a wrong secret is almost surely this large
        raise ValueError("the shares do not belong together, or are too few")
    return secret.to_bytes(SECRET_BYTES, "big")
