"""The server's side of any sites that add up: named arrays, summed over clients on the host in float64.

Repeated additions in float32 would drift, so sums are float64 and are computed afresh from time to time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedstein.inference.sites.base import Arrays, Own, SiteSums

Renew = Callable[[Arrays, Mapping[int, Own], Mapping[int, Any]], tuple[Arrays, dict[int, Arrays]]]


def additive_sums(
    names: tuple[str, ...],
    zeros: Callable[[Any], Arrays],
    tilted: Callable[[Arrays], Arrays],
    renew: Renew | None = None,
) -> SiteSums:
    """Build the sums of sites whose shared arrays add up over clients.

    Args:
        names: The shared arrays of a site.
        zeros: Dtype -> the arrays of a site at t_k = 1, on the host.
        tilted: The server's state -> what a report on the tilted target needs besides the particles.
        renew: How reports that are scores renew sites; None if they cannot.

    Returns:
        The server's side of the sites.
    """

    def cavity(server: Arrays, accepted: Own | None) -> Arrays:
        dtype = server["particles"].dtype
        others = {name: server[name] - np.asarray(accepted[name]) if accepted else server[name] for name in names}
        return {name: array.astype(dtype) for name, array in others.items()}

    def absorb(server: Arrays, accepted: Own | None, new: Arrays) -> Arrays:
        def replaced(name: str) -> np.ndarray:
            if not accepted:
                return server[name] + np.asarray(new[name])
            others = server[name] - np.asarray(accepted[name])
            return np.add(others, np.asarray(new[name]), out=others)

        return {name: replaced(name) for name in names}

    def total(accepted: Mapping[int, Own]) -> Arrays:
        sums = zeros(np.float64)
        for client in sorted(accepted):
            for name in names:
                sums[name] += np.asarray(accepted[client][name])
        return sums

    return SiteSums(lambda particles: zeros(np.float64), tilted, cavity, absorb, total, renew)
