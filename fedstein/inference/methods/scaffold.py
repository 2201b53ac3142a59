"""SCAFFOLD (Karimireddy et al. 2020): control variates correct each client's gradient towards that of all clients.

    client:  y <- y - eta (g_k(y) - c_k + c), L times from y = x;   c_k' = c_k - c + (x - y) / (L eta)   (option II),
    server:  x <- x + eta_s mean (y_k - x),   c <- mean over all clients of c_k.

g_k is the gradient of the client's mean loss. Means are weighted by rows, so that the fixed point is the optimum of
all rows together; the paper has clients of equal weight. Clients that never trained count in c with c_k = 0 and an
average number of rows. The prior is not used.

Reference: Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", ICML 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from fedstein.inference.local_sgd import average_by_rows, local_sgd
from fedstein.inference.methods.base import Accepted, ClientCountSettings, Method, MethodKind, PointSettings, Training
from fedstein.inference.methods.fedavg import fedavg
from fedstein.inference.sites.base import Arrays, Own, Site, State
from fedstein.models.base import Blocks, Model, join
from fedstein.settings import PositiveFloat


class ScaffoldSettings(PointSettings, ClientCountSettings):
    """Settings of SCAFFOLD."""

    kind: str = "scaffold"
    server_step: PositiveFloat = Field(1.0, description="eta_s, the step size of the server.")


def scaffold(model: Model, site: Site, settings: ScaffoldSettings) -> Method:
    """Build SCAFFOLD.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method. Its server state is ``particles``, ``control`` (c), and the sums over clients behind c in float64.
        A client keeps its ``control`` (c_k) and its number of ``rows``, which travel with every update.
    """
    plain, fleet = fedavg(model, site, settings), settings.client_count

    def init(key: Array) -> Arrays:
        first = plain.init(key)
        particles = first["particles"]
        zeros = np.zeros(particles.shape)
        return {
            **first,
            "control": jnp.zeros_like(particles),
            "total": zeros,
            "rows": np.zeros(()),
            "seen": np.zeros(()),
        }

    def assign(server: Arrays, accepted: Own | None) -> Arrays:
        return {"particles": server["particles"], "control": server["control"]}

    def train(given: Training) -> tuple[Arrays, State]:
        x, c, own = given.received["particles"], given.received["control"], given.state["control"]
        correction = model.split(own - c)

        def controlled(theta: Blocks) -> Blocks:
            return correction

        y = join(local_sgd(model, settings, given, model.split(x), controlled))
        rate = settings.local_steps * settings.step_size * given.scale
        return {"particles": y, "control": own - c + (x - y) / rate, "rows": given.shard.rows}, {}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        theta, dtype = np.asarray(server["particles"], np.float64), server["particles"].dtype
        after = theta + settings.server_step * (average_by_rows(updates) - theta)
        total, rows, seen = server["total"].copy(), float(server["rows"]), float(server["seen"])
        for client in sorted(updates):
            n, known = float(updates[client]["rows"]), accepted.get(client)
            total += n * np.asarray(updates[client]["control"], np.float64)
            if known is None:
                rows, seen = rows + n, seen + 1
            else:
                total -= n * np.asarray(known["control"], np.float64)
        control = total / rows * min(1.0, seen / fleet)
        return {
            **server,
            "particles": jnp.asarray(after, dtype),
            "control": jnp.asarray(control, dtype),
            "total": total,
            "rows": np.asarray(rows),
            "seen": np.asarray(seen),
        }

    def client_state(server: Arrays) -> State:
        return {"control": jnp.zeros_like(server["particles"])}

    return plain._replace(
        name="scaffold",
        init=init,
        client_state=client_state,
        assign=assign,
        train=train,
        apply=apply,
        shared=("control",),
    )


SCAFFOLD = MethodKind(
    name="scaffold",
    about="federated averaging with control variates; networks without a prior",
    settings=ScaffoldSettings,
    build=scaffold,
    sites="none",
    uses_sites=False,
    answers_tilted=False,
    full_participation=True,
    averages=True,
    least_particles=1,
)
