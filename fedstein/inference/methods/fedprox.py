"""FedProx (Li et al. 2020): federated averaging with a proximal term that keeps clients near the server's weights.

    client:  min_theta  F_k(theta) + (mu / 2) ||theta - theta_server||^2   by L steps of SGD,   server: weighted mean,

F_k the mean loss of the client's rows. The prior is not used.

Reference: Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in Heterogeneous Networks", MLSys
2020.
"""

from __future__ import annotations

import jax
from pydantic import Field

from fedstein.inference.local_sgd import local_sgd
from fedstein.inference.methods.base import Method, MethodKind, PointSettings, Training
from fedstein.inference.methods.fedavg import fedavg
from fedstein.inference.sites.base import Arrays, Site, State
from fedstein.models.base import Blocks, Model, join
from fedstein.settings import NonNegativeFloat


class FedproxSettings(PointSettings):
    """Settings of FedProx."""

    kind: str = "fedprox"
    mu: NonNegativeFloat = Field(0.01, description="Weight of the proximal term.")


def fedprox(model: Model, site: Site, settings: FedproxSettings) -> Method:
    """Build FedProx.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method. Its server state is ``particles``, the weights of each network.
    """

    def train(given: Training) -> tuple[Arrays, State]:
        start = model.split(given.received["particles"])

        def proximal(theta: Blocks) -> Blocks:
            return jax.tree.map(lambda t, s: settings.mu * (s - t), theta, start)

        theta = local_sgd(model, settings, given, start, proximal)
        return {"particles": join(theta), "rows": given.shard.rows}, {}

    return fedavg(model, site, settings)._replace(name="fedprox", train=train)


FEDPROX = MethodKind(
    name="fedprox",
    about="federated averaging with a proximal term; networks without a prior",
    settings=FedproxSettings,
    build=fedprox,
    sites="none",
    uses_sites=False,
    answers_tilted=False,
    full_participation=True,
    averages=True,
    least_particles=1,
)
