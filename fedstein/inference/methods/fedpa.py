"""FedPA (Al-Shedivat et al. 2021): federated posterior averaging by covariances of SGD iterates.

A client runs SGD from the server's weights, leaves the first steps out, and averages the iterates of each of l
windows to samples x_1..x_l. With their mean x and the shrunk covariance

    Sigma = r I + (1 - r) S,     S = sum_j (x_j - x)(x_j - x)' / (l - 1),     r = 1 / (1 + (l - 1) rho),

it sends Delta_k = Sigma^-1 (theta - x), and the server steps theta <- theta - eta sum_k w_k Delta_k. Sigma^-1 times a
vector takes O(l^2 d) by the Woodbury formula. At rho = 0 this is FedAvg. In the first ``burn_in_rounds`` rounds
clients send theta - x, as the authors advise. The fixed point is the mean of the product of the clients' Gaussians;
the prior is not used, and predictions use the point itself.

Reference: Al-Shedivat, Gillenwater, Xing and Rostamizadeh, "Federated Learning via Posterior Averaging", ICLR 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from fedstein.inference.linear_algebra import solve
from fedstein.inference.local_sgd import average_by_rows, sgd_step
from fedstein.inference.methods.base import Accepted, Method, MethodKind, PointSettings, Training
from fedstein.inference.methods.fedavg import fedavg
from fedstein.inference.sites.base import Arrays, Own, Site, State
from fedstein.models.base import Blocks, Model, join
from fedstein.settings import Count, NonNegativeFloat, Positive, PositiveFloat


class FedpaSettings(PointSettings):
    """Settings of FedPA."""

    kind: str = "fedpa"
    step_size: PositiveFloat = Field(0.1, description="Step size of stochastic gradient descent on the mean loss.")
    local_steps: Positive = Field(50, description="L, the steps that a client takes in a round.")
    samples: int = Field(5, ge=2, le=10**4, description="l, the windows of iterates that give a sample each.")
    burn_in: float = Field(0.5, ge=0, lt=1, description="Share of the local steps before the first window.")
    burn_in_rounds: Count = Field(0, description="Rounds in which clients send theta - mean, as in FedAvg.")
    shrinkage: NonNegativeFloat = Field(0.01, description="rho in r = 1 / (1 + (l - 1) rho).")
    server_step: PositiveFloat = Field(0.5, description="eta, the step size of the server.")


def fedpa(model: Model, site: Site, settings: FedpaSettings) -> Method:
    """Build FedPA.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method. Its server state is ``particles``, the weights of each network, and the number of rounds.
    """
    plain = fedavg(model, site, settings)
    first = int(settings.burn_in * settings.local_steps)
    window = max((settings.local_steps - first) // settings.samples, 1)

    def init(key: Array) -> Arrays:
        return {**plain.init(key), "rounds": np.zeros((), np.int32)}

    def assign(server: Arrays, accepted: Own | None) -> Arrays:
        warm = jnp.asarray(server["rounds"] >= settings.burn_in_rounds, jnp.int32)
        return {"particles": server["particles"], "warm": warm}

    def train(given: Training) -> tuple[Arrays, State]:
        theta = given.received["particles"]
        step = sgd_step(model, settings, given)
        start = jax.lax.fori_loop(0, first, step, model.split(theta))

        def one_window(now: Blocks, number: Array) -> tuple[Blocks, Array]:
            def body(i: Array, carry: tuple[Blocks, Blocks]) -> tuple[Blocks, Blocks]:
                now, total = carry
                now = step(first + number * window + i, now)
                return now, jax.tree.map(jnp.add, total, now)

            now, total = jax.lax.fori_loop(0, window, body, (now, jax.tree.map(jnp.zeros_like, now)))
            return now, join(total) / window

        _, samples = jax.lax.scan(one_window, start, jnp.arange(settings.samples))  # l x N x d
        mean = jnp.mean(samples, axis=0)
        solved = jax.vmap(lambda x, b: shrunk_solve(x, b, settings.shrinkage), (1, 0))(samples, theta - mean)
        delta = jnp.where(given.received["warm"] > 0, solved, theta - mean)
        return {"delta": delta, "rows": given.shard.rows}, {}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        theta = np.asarray(server["particles"], np.float64)
        after = theta - settings.server_step * average_by_rows(updates, "delta")
        moved = jnp.asarray(after, server["particles"].dtype)
        return {**server, "particles": moved, "rounds": np.asarray(server["rounds"] + 1, np.int32)}

    def row_gradients(rows: int) -> dict[str, int]:
        steps = first + window * settings.samples
        return {"train": steps * min(rows, settings.batch_size) * settings.particles, "site": 0}

    def weigh(server: Arrays, update: Arrays, factor: float) -> Arrays:
        return {**update, "delta": factor * np.asarray(update["delta"], np.float64)}

    return plain._replace(
        name="fedpa", init=init, assign=assign, train=train, apply=apply, row_gradients=row_gradients, weigh=weigh
    )


def shrunk_solve(samples: Array, right: Array, shrinkage: float) -> Array:
    """Sigma^-1 b for the shrunk covariance of l samples, without a d x d matrix.

    With C the l x d centred samples and c = (1 - r) / (l - 1), Sigma = r I + c C'C, so that

        Sigma^-1 b = (b - C' (r/c I + C C')^-1 C b) / r.

    Args:
        samples: l x d.
        right: b, d.
        shrinkage: rho.

    Returns:
        d numbers.
    """
    count = samples.shape[0]
    r = 1 / (1 + (count - 1) * shrinkage)
    if shrinkage == 0:
        return right
    centred = samples - jnp.mean(samples, axis=0)
    ratio = r * (count - 1) / (1 - r)
    inner = solve(ratio * jnp.eye(count, dtype=samples.dtype) + centred @ centred.T, centred @ right)
    return (right - centred.T @ inner) / r


FEDPA = MethodKind(
    name="fedpa",
    about="posterior averaging: clients send steps scaled by the covariance of their SGD iterates",
    settings=FedpaSettings,
    build=fedpa,
    sites="none",
    uses_sites=False,
    answers_tilted=False,
    full_participation=True,
    averages=True,
    least_particles=1,
)
