"""Federated averaging (McMahan et al. 2017): the selected clients run SGD from the same weights, the server averages.

It is a reference, not a Bayesian method: each particle is a network of its own that maximises the likelihood (the prior
is not used), one by default. The step size is the rate of SGD on the mean loss of a batch, and the average is weighted
by rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from pydantic import Field

from fedstein.inference.local_sgd import average_by_rows, local_sgd, sgd_row_gradients
from fedstein.inference.methods.base import Accepted, Method, MethodKind, MethodSettings, Training
from fedstein.inference.methods.dsvgd import initial_particles, particles_of
from fedstein.inference.sites.base import Arrays, Site, State
from fedstein.inference.target import TargetSpec
from fedstein.models.base import Model, join
from fedstein.settings import PositiveFloat
from fedstein.stein import KERNELS


class FedavgSettings(MethodSettings):
    """Settings of federated averaging."""

    kind: str = "fedavg"
    particles: int = Field(1, ge=1, le=10**6, description="Networks that are trained side by side.")
    step_size: PositiveFloat = Field(0.5, description="Step size of stochastic gradient descent.")


def fedavg(model: Model, site: Site, settings: MethodSettings) -> Method:
    """Build federated averaging.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method. Its server state is ``particles``, the weights of each network.
    """

    def train(given: Training) -> tuple[Arrays, State]:
        theta = local_sgd(model, settings, given, model.split(given.received["particles"]))
        return {"particles": join(theta), "rows": given.shard.rows}, {}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        return {**server, "particles": jnp.asarray(average_by_rows(updates), server["particles"].dtype)}

    return Method(
        name="fedavg",
        spec=TargetSpec(model, site, settings.temperature, KERNELS["rbf"]),
        init=lambda key: {"particles": initial_particles(model, settings.particles, key)},
        client_state=lambda server: {},
        broadcast=lambda server, uses: {"particles": server["particles"]},
        assign=lambda server, accepted: {"particles": server["particles"]},
        train=train,
        apply=apply,
        posterior=particles_of,
        shared=(),
        sequential=False,
        row_gradients=sgd_row_gradients(settings),
        weigh=scaled_update,
    )


def scaled_update(server: Arrays, update: Arrays, factor: float) -> Arrays:
    """The update with its move away from the server's weights times a factor.

    Args:
        server: The server's state.
        update: The update of a client.
        factor: The factor.

    Returns:
        The update.
    """
    theta = np.asarray(server["particles"], np.float64)
    return {**update, "particles": theta + factor * (np.asarray(update["particles"], np.float64) - theta)}


FEDAVG = MethodKind(
    name="fedavg",
    about="reference: federated averaging, one network and no prior",
    settings=FedavgSettings,
    build=fedavg,
    sites="none",
    uses_sites=False,
    answers_tilted=False,
    full_participation=True,
    averages=True,
    least_particles=1,
)
