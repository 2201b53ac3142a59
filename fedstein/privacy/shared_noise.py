"""Noise that the clients of a secure sum share, so that the sum does not have the full noise of every client.

A sum over clients needs noise of standard deviation s to protect a row of any of them. Nobody sees the parts, so each
of n clients adds a share. At least T clients are in every sum that is revealed (the threshold; with fewer the masks
stay on), and up to c of them may know their own shares and subtract them. Each client therefore adds Gaussian noise of
variance s^2 / (T - c). Whoever drops out and whichever c clients collude, the noise of the other clients has at least
the variance s^2. The client that owns the row is one of these others. A sum over n clients has the variance n s^2 / (T
- c), which the posterior counts in full.

**Rounding.** Masks need whole numbers, so every share is rounded to a grid whose width h is at most 2^-20 of its
standard deviation. Let N_i be Gaussian with variance v and U_i uniform on (-h/2, h/2), all independent. A rounded N_i
has at a grid point k the probability h times the density of N_i + U_i at k. By Poisson's summation formula the sum of n
of them has there h times the density of N_1 + .. + N_n + U_1 + .. + U_n, up to an error of the order of exp(-2 pi^2 v /
h^2), which is below 2^-(10^9). That is the distribution of (N_1 + .. + N_n) + U_1 + .. + U_(n-1), rounded once. So the
sum of rounded shares is post-processing of the Gaussian mechanism with the noise N_1 + .. + N_n, and it is accounted
for as this mechanism.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedstein.errors import InputError


class SharedNoise(NamedTuple):
    """A secure sum to which clients add shares of the noise.

    Attributes:
        session: The name of the sum; no two sums have the same.
        threshold: T, the fewest clients of a sum that is revealed.
    """

    session: str
    threshold: int

    def share(self, colluding: int) -> float:
        """Return the standard deviation of a client's share of the noise, relative to the noise that the sum needs.

        Args:
            colluding: c, the number of colluding clients, which may know their own shares.

        Returns:
            1 / sqrt(T - c).

        Raises:
            InputError: c is so large that no other client would be left.
        """
        if self.threshold <= colluding:
            raise InputError(
                f"privacy.colluding = {colluding}: only {self.threshold} clients are sure to be in a sum, and somebody "
                "must be left whose noise is not known; take fewer"
            )
        return 1 / math.sqrt(self.threshold - colluding)

    def factor(self, clients: int, colluding: int) -> float:
        """Return the variance of the noise in a sum over n clients, relative to what the sum needs: n / (T - c)."""
        return clients * self.share(colluding) ** 2
