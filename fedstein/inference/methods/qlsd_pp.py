"""QLSD++ (Vono et al. 2022): QLSD with gradients of reduced variance.

    H_k = (n_k / B) sum_batch [grad U_i(theta) - grad U_i(zeta_k)] + grad U_k(zeta_k),

zeta_k a reference point at which the client knows the gradient of all its rows. The authors renew one reference for
all clients every so many rounds; here every client renews its own at every ``refresh``-th visit, so that the server
has nothing to send for it. H_k is unbiased for any zeta_k. Everything else is QLSD.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from fedstein.data.shard import whole
from fedstein.inference.methods.base import Method, MethodKind, Training
from fedstein.inference.methods.qlsd import QlsdSettings, mean_score, quantised_langevin
from fedstein.inference.sites.base import Arrays, Site, State
from fedstein.models.base import Model, join
from fedstein.settings import Positive


class QlsdPpSettings(QlsdSettings):
    """Settings of QLSD++."""

    kind: str = "qlsd_pp"
    refresh: Positive = Field(20, description="Visits after which a client renews its reference point.")


def qlsd_pp(model: Model, site: Site, settings: QlsdPpSettings) -> Method:
    """Build QLSD++.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method.
    """

    def kept(server: Arrays) -> State:
        chain = server["chain"]
        return {"zeta": jnp.zeros_like(chain), "slope": jnp.zeros_like(chain), "visits": jnp.int32(0)}

    def estimate(given: Training) -> tuple[Array, State]:
        theta, state = given.received["chain"], given.state

        def renewed() -> tuple[Array, Array]:
            rows = whole(given.shard)
            weights = rows.weights / settings.temperature
            return theta, -join(model.likelihood_score(model.split(theta), rows.x, rows.y, weights))

        due = state["visits"] % settings.refresh == 0
        zeta, slope = jax.lax.cond(due, renewed, lambda: (state["zeta"], state["slope"]))
        change = mean_score(model, settings, given, zeta) - mean_score(model, settings, given, theta)
        return change + slope, {"zeta": zeta, "slope": slope, "visits": state["visits"] + 1}

    def row_gradients(rows: int) -> dict[str, int]:
        batches = 2 * settings.local_steps * min(rows, settings.batch_size)
        return {"train": (batches + -(-rows // settings.refresh)) * settings.chains, "site": 0}  # renewal on average

    return quantised_langevin(model, site, settings, estimate, kept, row_gradients)


QLSD_PP = MethodKind(
    name="qlsd_pp",
    about="QLSD with gradients of reduced variance",
    settings=QlsdPpSettings,
    build=qlsd_pp,
    sites="none",
    uses_sites=False,
    full_participation=True,
    least_particles=1,
)
