"""FedCor (Tang et al. 2022): clients whose change of loss best predicts that of all, by a Gaussian process.

A candidate reports its mean loss and its number of rows. Sigma is the covariance over clients of the changes of loss
from one report to the next. With p_i = n_i / sum n, the server takes

    argmax_k  alpha_k sum_i p_i Sigma_ik / sqrt(Sigma_kk),      then  Sigma <- Sigma - Sigma_.k Sigma_k. / Sigma_kk,

until enough clients are taken; alpha_k falls by ``anneal`` whenever client k has trained. Before ``warm_up`` changes
are known, clients are drawn uniformly.

The authors fit Sigma = X'X with short embeddings by gradient ascent on the likelihood of the changes. Here Sigma is
what maximises that likelihood without the limit on the rank: the (discounted) mean of the outer products of the last
``window`` changes, with ``ridge`` times its mean variance on the diagonal. A client that is not asked has no change.

Reference: Tang, Ning, Wang, Sun, Wang, Li and Chen, "FedCor: Correlation-Based Active Client Selection Strategy for
Heterogeneous Federated Learning", CVPR 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from pydantic import Field

from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import LIKELIHOOD, Target
from fedstein.selection.base import Draw, Memory, ReportingSettings, Scheme, SchemeKind
from fedstein.selection.draws import Indicators, greedy, proportional
from fedstein.selection.power_of_choice import above_zero
from fedstein.settings import NonNegativeFloat, Positive, Share
from fedstein.stein.kernel import Kernel


class FedcorSettings(ReportingSettings):
    """Settings of FedCor."""

    kind: str = "fedcor"
    draw: Literal["greedy"] = Field("greedy", description="In the order of the greedy search; there is no other rule.")
    warm_up: Positive = Field(5, description="Number of changes of loss to collect before they decide the choice.")
    window: Positive = Field(20, description="Number of latest changes of loss that give the covariance.")
    discount: Share = Field(0.9, description="Factor on the weight of a change for each later change.")
    anneal: Share = Field(0.95, description="The factor on a client's score each time it has trained.")
    ridge: NonNegativeFloat = Field(0.01, description="Share of the mean variance that is added to all variances.")


def fedcor(settings: FedcorSettings, kernel: Kernel) -> Scheme:
    """Build the scheme. It compares losses, so it needs no kernel.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the run.

    Returns:
        The scheme. Its memory is each client's last loss, rows and alpha_k, and the window of changes.
    """

    def report(target: Target, prepared: Any) -> Arrays:
        return {"loss": target.loss, "rows": jnp.asarray(target.rows, jnp.int32)}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        return above_zero([float(report["loss"]) for report in reports])

    def first(seed: int, clients: int) -> Memory:
        return {"losses": [None] * clients, "rows": [0] * clients, "alphas": [1.0] * clients, "changes": []}

    def learn(memory: Memory, reports: Mapping[int, Arrays]) -> Memory:
        losses, rows = list(memory["losses"]), list(memory["rows"])
        change = [0.0] * len(losses)
        for client, found in reports.items():
            loss = float(found["loss"])
            if losses[client] is not None:
                change[client] = loss - losses[client]
            losses[client], rows[client] = loss, int(found["rows"])
        known = [*memory["changes"], change] if any(change) else list(memory["changes"])
        return {**memory, "losses": losses, "rows": rows, "changes": known[-settings.window :]}

    def draw(memory: Memory, candidates: Sequence[int], values: Indicators, uniforms: np.ndarray) -> Draw:
        heard = [value is not None and bool(np.isfinite(value)) for value in values]
        if len(memory["changes"]) < settings.warm_up:
            return proportional(candidates, [1.0 if ok else None for ok in heard], uniforms, settings.max_probability)
        sigma = covariance(np.array(memory["changes"], np.float64), settings.discount, settings.ridge)
        able = [client for client, ok in zip(candidates, heard, strict=True) if ok]
        order = correlation_order(sigma, np.array(memory["rows"], float), np.array(memory["alphas"]), able)
        places = {client: len(order) - place for place, client in enumerate(order)}
        return greedy(
            candidates,
            [float(places[client]) if ok else None for client, ok in zip(candidates, heard, strict=True)],
            uniforms,
            settings.max_probability,
        )

    def after(memory: Memory, selected: Sequence[int], seed: int, clients: int) -> Memory:
        chosen = set(selected)
        return {**memory, "alphas": [a * settings.anneal if k in chosen else a for k, a in enumerate(memory["alphas"])]}

    return Scheme("fedcor", draw, report, indicators, uses=(LIKELIHOOD,), first=first, after=after, learn=learn)


def covariance(changes: np.ndarray, discount: float, ridge: float) -> np.ndarray:
    """The discounted mean of the outer products of changes, with a ridge on its diagonal.

    Args:
        changes: One row for each change, the latest one last; a column for each client.
        discount: The factor on a row's weight for each later one.
        ridge: The share of the mean variance that is added to all variances.

    Returns:
        K x K.
    """
    weights = discount ** np.arange(len(changes) - 1, -1, -1.0)
    found = (changes.T * (weights / weights.sum())) @ changes
    return found + ridge * np.trace(found) / len(found) * np.eye(len(found))


def correlation_order(sigma: np.ndarray, rows: np.ndarray, alphas: np.ndarray, able: Sequence[int]) -> list[int]:
    """The clients in the order in which the greedy search takes them.

    Args:
        sigma: The covariance, K x K.
        rows: Each client's rows.
        alphas: Each client's factor.
        able: The clients to order.

    Returns:
        Those clients, the first one taken first.
    """
    share, left, order = rows / max(rows.sum(), 1.0), list(able), []
    floor = 1e-12 * max(float(np.max(np.diag(sigma), initial=0.0)), 1e-300)
    while left:
        gains = [alphas[k] * float(share @ sigma[:, k]) / np.sqrt(max(sigma[k, k], floor)) for k in left]
        chosen = left.pop(int(np.argmax(gains)))
        order.append(chosen)
        if sigma[chosen, chosen] > floor:
            sigma = sigma - np.outer(sigma[:, chosen], sigma[chosen]) / sigma[chosen, chosen]
    return order


FEDCOR = SchemeKind("fedcor", "correlated changes of loss; two scalars from each candidate", FedcorSettings, fedcor)
