"""FSGLD (El Mekkaoui et al. 2021): DSGLD with conducive gradients, which remove the pull towards the visited client.

Every client has a Gaussian surrogate q_s of its likelihood, and q = prod_s q_s. While the chain visits client s it
takes

    theta <- theta + (eps / 2) (grad log p0 + (1 / f_s) grad log p_s) + sqrt(eps) Z
                   + (eps / 2) (grad log q - (1 / f_s) grad log q_s).

The two new terms add up to zero over clients drawn with probabilities f_s = 1 / K, whatever the surrogates are; where
q_s is near p_s, each visit sees nearly the gradient of all rows. The authors fit surrogates before the first round.
Here a client expands its log-likelihood at the end of every visit to a diagonal Gaussian (slope and Fisher
information at the mean of the chains), and a client that was never visited has the surrogate 1.

Reference: El Mekkaoui, Mesquita, Blomstedt and Kaski, "Federated Stochastic Gradient Langevin Dynamics", UAI 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.data.shard import whole
from fedstein.inference.langevin import with_chain
from fedstein.inference.local_laplace import curvature_at
from fedstein.inference.methods.base import Accepted, Method, MethodKind, Training
from fedstein.inference.methods.dsgld import DsgldSettings, dsgld, langevin_visit
from fedstein.inference.sites.base import Arrays, Own, Site, State
from fedstein.models.base import Model, join

SURROGATE = ("eta", "precision")


class FsgldSettings(DsgldSettings):
    """Settings of FSGLD."""

    kind: str = "fsgld"


def fsgld(model: Model, site: Site, settings: FsgldSettings) -> Method:
    """Build FSGLD.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method. Its server state has the sums of the surrogates' natural parameters besides the chains.
    """
    plain = dsgld(model, site, settings)

    def init(key: Array) -> Arrays:
        return {**plain.init(key), **{name: np.zeros(model.dim) for name in SURROGATE}}

    def client_state(server: Arrays) -> State:
        return {name: jnp.zeros(model.dim, server["chain"].dtype) for name in SURROGATE}

    def assign(server: Arrays, accepted: Own | None) -> Arrays:
        dtype = server["chain"].dtype
        return {"chain": server["chain"], **{name: jnp.asarray(server[name], dtype) for name in SURROGATE}}

    def train(given: Training) -> tuple[Arrays, State]:
        received, own = given.received, given.state
        eta, precision = (received[name] - settings.client_count * own[name] for name in SURROGATE)
        chain = langevin_visit(model, settings, given, lambda theta: eta - precision * theta)
        centre, rows = jnp.mean(chain, axis=0), whole(given.shard)
        weights = rows.weights / settings.temperature
        slope = join(model.likelihood_score(model.split(centre[None]), rows.x, rows.y, weights))[0]
        curvature = curvature_at(model, given, centre, settings.temperature)
        return {"chain": chain, "eta": slope + curvature * centre, "precision": curvature}, {}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        for client, update in updates.items():
            old, sums = accepted.get(client), {}
            for name in SURROGATE:
                before = 0.0 if old is None else np.asarray(old[name], np.float64)
                sums[name] = server[name] + np.asarray(update[name], np.float64) - before
            server = {**with_chain(server, update["chain"]), **sums}
        return server

    def row_gradients(rows: int) -> dict[str, int]:
        return {**plain.row_gradients(rows), "site": 2 * rows}

    return plain._replace(
        init=init,
        client_state=client_state,
        assign=assign,
        train=train,
        apply=apply,
        shared=SURROGATE,
        row_gradients=row_gradients,
    )


FSGLD = MethodKind(
    name="fsgld",
    about="a Langevin chain that hops from client to client, with surrogates of the clients it does not visit",
    settings=FsgldSettings,
    build=fsgld,
    sites="none",
    uses_sites=False,
    scheme="random",
    least_particles=1,
)
