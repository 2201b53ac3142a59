"""Sums over clients that the server sees only as sums: secure aggregation after Bonawitz et al. (2017).

``fixed_point`` makes numbers whole, ``shamir`` shares secrets, ``masks`` agrees on keys and draws masks; ``member`` is
what a client does in each of the four phases, and ``collector`` what the server does. docs/privacy.md has the threat
model. Keys and masks come from the operating system and not from the seed of the run, which the server knows; the sum
does not depend on them.
"""

from __future__ import annotations

LEAST = 3  # clients of a sum: with two, each finds the other's summand
