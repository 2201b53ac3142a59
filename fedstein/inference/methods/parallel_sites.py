"""Several clients in one round with sites that add up: all train from the same particles, the server takes the average.

The cavity makes every client's target an approximation of the same global posterior, so the moves of m clients are m
noisy estimates of one move: their mean is the move to make, whereas their sum (or the mode of the summed new sites,
each expanded somewhere else) overshoots. With all sites at zero, in the first round, this is federated averaging. In
later rounds the sites keep the clients together. Particles keep their order, so averages are taken particle by
particle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedstein.inference.methods.base import Accepted, Method, SvgdSettings
from fedstein.inference.methods.dsvgd import dsvgd
from fedstein.inference.sites.base import Arrays, Site
from fedstein.models.base import Model


def parallel_sites(model: Model, site: Site, settings: SvgdSettings, *, name: str) -> Method:
    """Build the parallel method for sites that add up.

    Args:
        model: The model.
        site: The sites that clients keep.
        settings: The settings of ``[algorithm]``.
        name: The name of the method.

    Returns:
        The method.
    """

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        moved = server
        for client in sorted(updates):
            moved = {**moved, **site.sums.absorb(moved, accepted.get(client), updates[client])}
        average = sum(np.asarray(updates[client]["particles"], np.float64) for client in sorted(updates)) / len(updates)
        return {**moved, "particles": jnp.asarray(average, server["particles"].dtype)}

    return dsvgd(model, site, settings, name=name)._replace(apply=apply, sequential=False)
