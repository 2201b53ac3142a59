"""Sums over clients of which the server sees no single summand: secure aggregation after Bonawitz et al. (2017).

``fixed_point`` encodes numbers as integers, ``shamir`` shares secrets, and ``masks`` agrees on keys and draws masks.
``member`` has the client's four phases, and ``collector`` the server's part. docs/privacy.md has the threat model. Keys
and masks come from the operating system and not from the seed of the run, which the server knows; the sum does not
depend on them.
"""

from __future__ import annotations

LEAST = 3  # the fewest clients of a sum: with two, each could compute the other's summand


def least_threshold(clients: int) -> int:
    """The smallest threshold that a client accepts: more than two thirds.

    Two sets of survivors of that size have more than a third of the clients in common. So a server that names different
    survivors to different clients cannot get enough shares for both sets, unless more than a third of the clients
    cooperate with it.
    """
    return 2 * clients // 3 + 1
