"""Several clients in one round with sites that add up: all train from the same particles, the server takes the average.

The cavity makes every client's target an approximation of the same global posterior, so the moves of m clients are m
noisy readings of one move: their mean is the move to make, whereas their sum (or the mode of the summed new sites, each
expanded somewhere else) overshoots. With all sites at zero, in the first round, this is federated averaging; from then
on the sites hold the clients together. Particles keep their order, so averages are taken particle by particle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedstein.algorithms.base import Accepted, Algorithm, Arrays
from fedstein.algorithms.dsvgd import dsvgd
from fedstein.models.base import Model
from fedstein.sites.base import Site


def parallel_sites(model: Model, site: Site, **settings: Any) -> Algorithm:
    """``settings`` are those of ``dsvgd``."""
    serial = dsvgd(model, site, **settings)

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        moved = server
        for client in sorted(updates):
            moved = {**moved, **site.sums.absorb(moved, accepted.get(client), updates[client])}
        average = sum(np.asarray(updates[client]["particles"], np.float64) for client in sorted(updates)) / len(updates)
        return {**moved, "particles": jnp.asarray(average, server["particles"].dtype)}

    return serial._replace(name="parallel_dsvgd", apply=apply, serial=False)
