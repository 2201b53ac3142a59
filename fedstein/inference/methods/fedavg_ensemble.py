"""An ensemble of federated averaging runs: several networks with their own starts and batches, predictions averaged.

Each of the ``particles`` networks is a run of FedAvg of its own; a client trains all of them in one visit. It is what
an engineer would try first for uncertainty (Lakshminarayanan et al. 2017, with FedAvg in place of central training).
The prior is not used.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from fedstein.inference.local_sgd import local_sgd
from fedstein.inference.methods.base import Method, MethodKind, PointSettings, Training
from fedstein.inference.methods.fedavg import fedavg
from fedstein.inference.sites.base import Arrays, Site, State
from fedstein.models.base import Model, join


class EnsembleSettings(PointSettings):
    """Settings of an ensemble of FedAvg runs."""

    kind: str = "fedavg_ensemble"
    particles: int = Field(5, ge=2, le=10**6, description="Networks of the ensemble.")


def fedavg_ensemble(model: Model, site: Site, settings: EnsembleSettings) -> Method:
    """Build the ensemble.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method. Its server state is ``particles``, the weights of each network.
    """

    def train(given: Training) -> tuple[Arrays, State]:
        particles = given.received["particles"]

        def member(number_and_weights: tuple[Array, Array]) -> Array:
            number, weights = number_and_weights
            own = given._replace(key=jax.random.fold_in(given.key, number))
            return join(local_sgd(model, settings, own, model.split(weights[None])))[0]

        after = jax.lax.map(member, (jnp.arange(particles.shape[0]), particles))
        return {"particles": after, "rows": given.shard.rows}, {}

    return fedavg(model, site, settings)._replace(name="fedavg_ensemble", train=train)


FEDAVG_ENSEMBLE = MethodKind(
    name="fedavg_ensemble",
    about="several runs of federated averaging with their own starts and batches",
    settings=EnsembleSettings,
    build=fedavg_ensemble,
    sites="none",
    uses_sites=False,
    answers_tilted=False,
    full_participation=True,
    averages=True,
)
