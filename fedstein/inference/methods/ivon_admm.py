"""IVON-ADMM (Bayesian ADMM, ICLR 2026): PVI with a penalty, a relaxed server step, and IVON on the clients.

With t_k = (-v_k, -V_k) in natural parameters, the paper's dual variables, and penalty rho,

    client:  q_k = argmin_q  E_q[-log p_k + log t_k] + rho KL(q || q_g)    by IVON,
    dual:    log t_k <- log t_k + gamma rho (log q_k - log q_g),
    server:  S_g = (1 - a) mean S_k + a (S_0 + sum_k lambda_k),   and S_g m_g alike,   a = 1 / (1 + rho K).

The fixed point has q_k = q_g = p0 prod_k t_k, as in PVI; at rho = 1 the client's problem is PVI's. The server
computes q_k from the change of the factor, so a client sends 2 d numbers. The dual step uses the q_g that the client
received.
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
from fedstein.inference.factor_method import FactorSettings, adam_rate, factor_method
from fedstein.inference.local_vi import Anchor, likelihood_score, natural_vi
from fedstein.inference.methods.base import Accepted, ClientCountSettings, Method, MethodKind, Training
from fedstein.inference.sites.base import Arrays, Own, Site
from fedstein.inference.target import TILTED
from fedstein.models.base import Model
from fedstein.settings import PositiveFloat, Share


class IvonAdmmSettings(FactorSettings, ClientCountSettings):
    """Settings of IVON-ADMM."""

    kind: str = "ivon_admm"
    step_size: PositiveFloat = Field(0.05, description="Share of a Newton step that IVON takes.")
    damping: Share = Field(1.0, description="gamma, the share of the dual step.")
    penalty: PositiveFloat = Field(1.0, description="rho, the penalty of ADMM.")
    curvature_rate: Share = Field(0.05, description="Weight of a new estimate of the curvature.")


def ivon_admm(model: Model, site: Site, settings: IvonAdmmSettings) -> Method:
    """Build IVON-ADMM.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method. Its server state has ``q_eta`` and ``q_precision``, the global q, besides the sums of factors.
    """
    penalty = settings.penalty
    relaxed = 1 / (1 + penalty * settings.client_count)

    def fit(given: Training, cavity: Anchor, start: tuple[Array, Array]) -> tuple[Array, Array]:
        return natural_vi(
            likelihood_score(model, settings, given, settings.temperature * penalty),
            cavity,
            start,
            key=jax.random.fold_in(given.key, 1),
            steps=settings.local_steps,
            rate=adam_rate(settings, given),
            curvature_rate=settings.curvature_rate,
            samples=settings.samples,
        )

    plain = factor_method(model, site, settings, fit, power=penalty)

    def init(key: Array) -> Arrays:
        first = plain.init(key)
        return {**first, "q_eta": first["prior_eta"], "q_precision": first["prior_precision"]}

    def moments(server: Arrays) -> tuple[np.ndarray, np.ndarray]:
        precision = np.maximum(server["q_precision"], diagonal.LEAST * server["prior_precision"])
        return server["q_eta"] / precision, precision

    def assign(server: Arrays, accepted: Own | None) -> Arrays:
        dtype, (mean, precision) = server["origin"].dtype, moments(server)
        sent = {"mean": mean, "precision": precision, "trained": server["trained"]}
        return {name: jnp.asarray(array, dtype) for name, array in sent.items()}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        mean, precision = moments(server)
        moved = diagonal.absorb(model, server, accepted, updates)
        step = settings.damping * penalty * len(updates)
        fresh = {}
        for name, old in (("eta", mean * precision), ("precision", precision)):
            of_clients = old + (moved[name] - server[name]) / step
            fresh[f"q_{name}"] = (1 - relaxed) * of_clients + relaxed * (moved[f"prior_{name}"] + moved[name])
        return {**moved, **fresh}

    def posterior(server: Arrays) -> Array:
        if not server["trained"]:
            return plain.posterior(server)
        return diagonal.draws_of(server, settings.particles, *moments(server))

    def broadcast(server: Arrays, uses: tuple[str, ...]) -> Arrays:
        sent = assign(server, None)
        own = {"q_mean": sent["mean"], "q_precision": sent["precision"]} if TILTED in uses else {}
        return {"particles": posterior(server), **own}

    return plain._replace(init=init, assign=assign, apply=apply, posterior=posterior, broadcast=broadcast)


IVON_ADMM = MethodKind(
    name="ivon_admm",
    about="Bayesian ADMM: a Gaussian factor for each client as dual variables, IVON on the clients",
    settings=IvonAdmmSettings,
    build=ivon_admm,
    sites="none",
    uses_sites=False,
    full_participation=True,
    least_particles=1,
)
