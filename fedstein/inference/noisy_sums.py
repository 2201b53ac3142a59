"""The server's state in a private run with secure sums: the noisy sums over the clients of every round.

Round t gives sum_k g_k and sum_k M_k over the clients S_t of its sum, with noise of f_t times the variance of a single
release (``fedstein.privacy.shared_noise``). V rounds are averaged: with the notation of ``noisy_sites``,

    (1 / V) sum_t [g_t + A_t(theta_t)]  =  (1 / V) sum_t A_t(theta) + z + e,     Var(e) = s^2 sum_t f_t / V^2,

where A_t is computed from the moments of round t. Rounds with the same clients have the same moments, which are then
averaged over these rounds. If clients drop out of some rounds, client k is in a share c_k of all sums; z has the
covariance sum_k c_k^2 Lambda_k, for which sum_k c_k Lambda_k is taken, which is not smaller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedstein.inference.natural import packed, unpacked
from fedstein.inference.noisy_linear import LinearSums
from fedstein.inference.noisy_sites import Group, Observed, Scales
from fedstein.inference.sites.base import Arrays
from fedstein.privacy.mechanism import GRADIENT, MOMENTS
from fedstein.privacy.synthetic import SyntheticRows, synthetic_rows


def no_rounds(visits: int, released: int, width: int, triangle: int) -> Arrays:
    """The server's arrays before the first sum.

    Args:
        visits: The most rounds of a run.
        released: The length of a released gradient.
        width: The number of coefficients.
        triangle: The length of packed moments.

    Returns:
        Arrays with an entry for each round. ``factors`` is 0 for a round without a sum, and ``members`` tells rounds
        with other clients apart.
    """
    return {
        "gradients": np.zeros((visits, released)),
        "points": np.zeros((visits, width)),
        "moments": np.zeros((visits, triangle)),
        "factors": np.zeros(visits),
        "members": np.zeros(visits, np.int32),
    }


def add_round(
    server: Mapping[str, Any],
    number: int,
    point: np.ndarray,
    sums: Mapping[str, Any],
    clients: Sequence[int],
    factor: float,
) -> Arrays:
    """The arrays with the sums of one round.

    Args:
        server: The server's state.
        number: The round, from 1.
        point: Where gradients were taken.
        sums: The noisy sums over clients.
        clients: The clients that are in them.
        factor: The variance of their noise over that of a single release.

    Returns:
        The changed arrays.
    """
    after = {name: np.array(server[name]) for name in ("gradients", "points", "moments", "factors", "members")}
    after["gradients"][number - 1] = sums[GRADIENT]
    after["points"][number - 1] = point
    after["moments"][number - 1] = packed(np.asarray(sums[MOMENTS]))
    after["factors"][number - 1] = factor
    named = hashlib.sha256(",".join(map(str, sorted(clients))).encode()).digest()
    after["members"][number - 1] = int.from_bytes(named[:4], "big", signed=True)
    return after


def observe_sums(server: Mapping[str, Any], inputs: int, scales: Scales) -> Observed | None:
    """Put the sums of all rounds together.

    Args:
        server: The server's state.
        inputs: The width of a row, the intercept included.
        scales: The noise of a single release.

    Returns:
        The observation; None before the first sum.
    """
    factors = np.asarray(server["factors"], np.float64)
    rounds = np.flatnonzero(factors)
    count = len(rounds)
    if not count:
        return None
    members, moments = np.asarray(server["members"]), np.asarray(server["moments"], np.float64)
    found: dict[int, SyntheticRows] = {}
    for group in {int(members[t]) for t in rounds}:
        alike = [t for t in rounds if members[t] == group]
        mean = unpacked(moments[alike].mean(axis=0), inputs) / count
        noise = scales.moments * float(np.sqrt(factors[alike].sum())) / len(alike) / count
        found[group] = synthetic_rows(mean, noise)
    groups = [Group(np.asarray(server["points"][t], np.float64), found[int(members[t])]) for t in rounds]
    gradient = np.asarray(server["gradients"], np.float64)[rounds].mean(axis=0)
    return Observed(gradient, groups, scales.gradient**2 * float(factors[rounds].sum()) / count**2)


def add_linear(server: Mapping[str, Any], inputs: int, weight: float, scales: Scales) -> LinearSums | None:
    """The sums of all rounds of a linear regression; see ``noisy_linear.add_releases``."""
    factors = np.asarray(server["factors"], np.float64)
    rounds = np.flatnonzero(factors)
    if not len(rounds):
        return None
    share = float(factors.sum()) / len(rounds) ** 2
    total = np.asarray(server["gradients"], np.float64)[rounds].mean(axis=0)
    moments = unpacked(np.asarray(server["moments"], np.float64)[rounds].mean(axis=0), inputs)
    variance = share * scales.gradient**2
    return LinearSums(
        total[:-1], float(total[-1]) / weight, moments, variance, variance / weight**2, share * scales.moments**2
    )
