"""FedAdam (Reddi et al. 2021): federated averaging whose server takes an Adam step along the mean move of the clients.

    D = sum_k w_k (theta_k - theta),   m <- b1 m + (1 - b1) D,   v <- b2 v + (1 - b2) D^2,
    theta <- theta + eta m / (sqrt v + tau),

with w_k the clients' shares of the rows, m starting at zero and v at tau^2, and no correction of their bias, as in
the paper. The prior is not used.

Reference: Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, "Adaptive Federated Optimization", ICLR
2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from fedstein.inference.local_sgd import average_by_rows
from fedstein.inference.methods.base import Accepted, Method, MethodKind, PointSettings
from fedstein.inference.methods.fedavg import fedavg
from fedstein.inference.sites.base import Arrays, Site
from fedstein.models.base import Model
from fedstein.settings import PositiveFloat


class FedadamSettings(PointSettings):
    """Settings of FedAdam."""

    kind: str = "fedadam"
    server_step: PositiveFloat = Field(0.03, description="eta, the step size of the server.")
    beta1: float = Field(0.9, ge=0, lt=1, description="The server's momentum.")
    beta2: float = Field(0.99, ge=0, lt=1, description="The decay of the server's squared moves.")
    tau: PositiveFloat = Field(1e-3, description="Guard against division by zero, and the smallest scale of a move.")


def fedadam(model: Model, site: Site, settings: FedadamSettings) -> Method:
    """Build FedAdam.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``; the schedule scales the steps of the clients and of the server.

    Returns:
        The method. Its server state is ``particles``, and the moments ``m`` and ``v`` of their moves in float64.
    """
    plain = fedavg(model, site, settings)

    def init(key: Array) -> Arrays:
        first = plain.init(key)
        shape = first["particles"].shape
        return {**first, "m": np.zeros(shape), "v": np.full(shape, settings.tau**2)}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        theta = np.asarray(server["particles"], np.float64)
        move = average_by_rows(updates) - theta
        m = settings.beta1 * server["m"] + (1 - settings.beta1) * move
        v = settings.beta2 * server["v"] + (1 - settings.beta2) * move**2
        after = theta + float(scale) * settings.server_step * m / (np.sqrt(v) + settings.tau)
        return {**server, "particles": jnp.asarray(after, server["particles"].dtype), "m": m, "v": v}

    return plain._replace(name="fedadam", init=init, apply=apply)


FEDADAM = MethodKind(
    name="fedadam",
    about="federated averaging with Adam at the server; networks without a prior",
    settings=FedadamSettings,
    build=fedadam,
    sites="none",
    uses_sites=False,
    answers_tilted=False,
    full_participation=True,
    averages=True,
    least_particles=1,
)
