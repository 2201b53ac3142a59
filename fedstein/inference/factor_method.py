"""Methods that keep one diagonal Gaussian factor t_k a client: q = p0 prod_k t_k. PVI, FedGVI, FedEP and FedLap.

A client takes its factor out of q, fits the rest times its likelihood, and sends its new factor:

    cavity = q / t_k,     q' = fit(cavity, p_k),     log t_k <- log t_k + rho (log q' - log q),

in natural parameters, d numbers each of eta and precision. How q' is fitted is what the methods differ in. ``power``
generalises the first line to q / t_k^(1/power) and p_k^(1/power), and rho to rho * power: that is ADMM with penalty
``power`` (``methods.ivon_admm``), of which PVI is the case 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from fedstein.inference import diagonal
from fedstein.inference.local_vi import Anchor
from fedstein.inference.methods.base import Accepted, Method, MethodSettings, Training
from fedstein.inference.sites.base import Arrays, Own, Site, State
from fedstein.inference.target import TILTED, TargetSpec
from fedstein.models.base import Model
from fedstein.settings import Positive, PositiveFloat, Share
from fedstein.stein import KERNELS

# What the client got, the cavity, mean and precision to start from -> mean and precision of the fitted q'.
Fit = Callable[[Training, Anchor, tuple[Array, Array]], tuple[Array, Array]]
Moments = tuple[np.ndarray, np.ndarray]


class FactorSettings(MethodSettings):
    """The keys of methods that keep a Gaussian factor of each client."""

    particles: int = Field(20, ge=1, le=10**6, description="Draws of q that predictions and reports use.")
    local_steps: Positive = Field(50, description="L, the steps that a client takes in a round.")
    samples: Positive = Field(2, description="Pairs of antithetic draws in a step.")
    start_sd: PositiveFloat = Field(0.03, description="Standard deviation of q where the first training starts.")
    damping: Share = Field(0.5, description="rho, the share of the change that a factor takes.")
    updates: Literal["synchronous", "sequential"] = Field(
        "synchronous",
        description="Whether the clients of a round all start from the same q, or each from the q of the one before.",
    )


def factor_method(
    model: Model,
    site: Site,
    settings: FactorSettings,
    fit: Fit,
    *,
    rho: float | None = None,
    power: float = 1.0,
    points: int = 0,
    curvature: bool = False,
) -> Method:
    """Build a method around ``fit``.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.
        fit: The local inference.
        rho: The damping; that of the settings without it.
        power: The penalty of ADMM; 1 for all others.
        points: Points at which a step differentiates each row; the antithetic draws unless set.
        curvature: Whether ``fit`` also differentiates every row once for a curvature.

    Returns:
        The method. Its server state is described in ``diagonal.first_state``.
    """
    step = (settings.damping if rho is None else rho) * power
    sd = settings.start_sd

    def posterior(server: Arrays) -> Array:
        return diagonal.q_draws(server, settings.particles, sd)

    def train(given: Training) -> tuple[Arrays, State]:
        received, state = given.received, given.state
        precision, eta = received["precision"], received["precision"] * received["mean"]
        cavity = Anchor(eta - state["eta"] / power, precision - state["precision"] / power)
        mean, fitted = fit(given, cavity, diagonal.start_of(received, state, sd))
        update = {
            "eta": state["eta"] + step * (fitted * mean - eta),
            "precision": state["precision"] + step * (fitted - precision),
        }
        return update, {"origin": state["origin"]}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        return diagonal.absorb(model, server, accepted, updates)

    def row_gradients(rows: int) -> dict[str, int]:
        trained = settings.local_steps * min(rows, settings.batch_size) * (points or 2 * settings.samples)
        return {"train": trained, "site": rows if curvature else 0}

    def assign(server: Arrays, accepted: Own | None) -> Arrays:
        return diagonal.assigned(server)

    def broadcast(server: Arrays, uses: tuple[str, ...]) -> Arrays:
        return diagonal.broadcast_of(server, posterior(server), TILTED in uses)

    return Method(
        name=settings.kind,
        spec=TargetSpec(model, diagonal.with_cavity(model, site), settings.temperature, KERNELS["rbf"]),
        init=lambda key: diagonal.first_state(model, key, sd),
        client_state=diagonal.no_factor,
        broadcast=broadcast,
        assign=assign,
        train=train,
        apply=apply,
        posterior=posterior,
        shared=diagonal.FACTOR,
        sequential=settings.updates == "sequential",
        row_gradients=row_gradients,
    )


def adam_rate(settings: MethodSettings, given: Training) -> Array:
    """The step size of the round."""
    return jnp.asarray(settings.step_size * given.scale)
