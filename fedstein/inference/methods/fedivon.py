"""FedIvon (Pal et al. 2024): clients run IVON as if their rows stood for all rows, the server averages Gaussians.

    client:  q_k fits p0 p_k^(N / n_k) by IVON from the server's q,
    server:  P = sum_k w_k P_k,   m = sum_k w_k P_k m_k / P,   w_k = n_k / sum n,

P_k the precisions, which are N (h_k + delta) in the paper's terms. N is the number of all rows: K times the average
number of rows of the clients that have trained so far. Clients keep nothing, so there is no cavity; KSD's reports
then are about p0 p_k.

Reference: Pal et al., "Simple and Scalable Federated Learning with Uncertainty via Improved Variational Online
Newton", 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from fedstein.inference import diagonal
from fedstein.inference.factor_method import adam_rate
from fedstein.inference.local_sgd import average_by_rows
from fedstein.inference.local_vi import Anchor, likelihood_score, natural_vi
from fedstein.inference.methods.base import Accepted, ClientCountSettings, Method, MethodKind, Training
from fedstein.inference.sites.base import Arrays, Site, State
from fedstein.inference.target import TargetSpec
from fedstein.models.base import Model
from fedstein.settings import Positive, PositiveFloat, Share
from fedstein.stein import KERNELS


class FedivonSettings(ClientCountSettings):
    """Settings of FedIvon."""

    kind: str = "fedivon"
    particles: int = Field(20, ge=1, le=10**6, description="Draws of q that predictions and reports use.")
    local_steps: Positive = Field(50, description="L, the steps that a client takes in a round.")
    step_size: PositiveFloat = Field(0.05, description="Share of a Newton step that IVON takes.")
    samples: Positive = Field(2, description="Pairs of antithetic draws in a step.")
    start_sd: PositiveFloat = Field(0.03, description="Standard deviation of q before round 1.")
    curvature_rate: Share = Field(0.05, description="Weight of a new estimate of the curvature.")


def fedivon(model: Model, site: Site, settings: FedivonSettings) -> Method:
    """Build FedIvon.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method. Its server state is ``mean`` and ``precision`` of q, the rows and the number of clients seen.
    """
    fleet = settings.client_count

    def init(key: Array) -> Arrays:
        origin = model.init(key, 1)[0]
        return {
            "mean": np.asarray(origin, np.float64),
            "precision": np.full(model.dim, 1 / settings.start_sd**2),
            "rows": np.zeros(()),
            "seen": np.zeros(()),
            "origin": origin,
            "key": np.asarray(jax.random.key_data(jax.random.fold_in(key, 1))),
        }

    def assign(server: Arrays, accepted: Any) -> Arrays:
        dtype = server["origin"].dtype
        total = server["rows"] * fleet / max(float(server["seen"]), 1.0)
        sent = {"mean": server["mean"], "precision": server["precision"], "total": total}
        return {name: jnp.asarray(array, dtype) for name, array in sent.items()}

    def train(given: Training) -> tuple[Arrays, State]:
        mean, precision, total = (given.received[name] for name in ("mean", "precision", "total"))
        rows = given.shard.rows.astype(mean.dtype)
        share = rows / jnp.where(total > 0, total, rows * fleet)
        prior = Anchor(*diagonal.prior_secant(model, mean, 1 / jnp.sqrt(precision)))
        mean, precision = natural_vi(
            likelihood_score(model, settings, given, settings.temperature * share),
            prior,
            (mean, precision),
            key=jax.random.fold_in(given.key, 1),
            steps=settings.local_steps,
            rate=adam_rate(settings, given),
            curvature_rate=settings.curvature_rate,
            samples=settings.samples,
        )
        return {"eta": precision * mean, "precision": precision, "rows": given.shard.rows}, {"seen": jnp.int32(1)}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        fresh = [client for client in updates if client not in accepted]
        rows = float(server["rows"]) + sum(float(updates[client]["rows"]) for client in fresh)
        precision = average_by_rows(updates, "precision")
        return {
            **server,
            "mean": average_by_rows(updates, "eta") / precision,
            "precision": precision,
            "rows": np.asarray(rows),
            "seen": np.asarray(float(server["seen"]) + len(fresh)),
        }

    def posterior(server: Arrays) -> Array:
        return diagonal.draws_of(server, settings.particles, server["mean"], server["precision"])

    def row_gradients(rows: int) -> dict[str, int]:
        return {"train": settings.local_steps * min(rows, settings.batch_size) * 2 * settings.samples, "site": 0}

    return Method(
        name="fedivon",
        spec=TargetSpec(model, site, settings.temperature, KERNELS["rbf"]),
        init=init,
        client_state=lambda server: {"seen": jnp.int32(0)},
        broadcast=lambda server, uses: {"particles": posterior(server)},
        assign=assign,
        train=train,
        apply=apply,
        posterior=posterior,
        shared=(),
        sequential=False,
        row_gradients=row_gradients,
    )


FEDIVON = MethodKind(
    name="fedivon",
    about="clients run IVON from the server's Gaussian, the server averages natural parameters",
    settings=FedivonSettings,
    build=fedivon,
    sites="none",
    uses_sites=False,
    full_participation=True,
    least_particles=1,
)
