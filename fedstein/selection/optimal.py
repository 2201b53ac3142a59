"""Optimal client sampling (Chen, Horvath and Richtarik 2020): inclusion probabilities of least variance.

A client reports the norm of its gradient, u_k = n_k ||g_k||. With m clients a round and u sorted from small to large,
the probabilities that minimise the variance of the estimated total gradient are

    p_k = (m + l - K) u_k / sum_{j <= l} u_j  for the l smallest,   p_k = 1 for the others,

l the largest number for which all are at most 1. The authors include each client on its own with probability p_k, so
that the number of clients varies; here exactly m train: those with p_k = 1, and the others drawn without replacement
in proportion to p_k. With one client a round that is the gradient norm rule. The authors weigh updates by 1 / p_k;
``selection.unbiased`` weighs them by the inclusion probabilities of the draw that is made here, for methods that
average updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import LIKELIHOOD, Target
from fedstein.selection.base import Draw, Memory, Scheme, SchemeKind
from fedstein.selection.draws import Indicators, proportional
from fedstein.selection.unbiased import UnbiasedSettings, race_weights
from fedstein.stein.kernel import Kernel


class OptimalSettings(UnbiasedSettings):
    """Settings of optimal client sampling."""

    kind: str = "optimal"
    draw: Literal["proportional"] = Field("proportional", description="This scheme has no other rule.")


def optimal(settings: OptimalSettings, kernel: Kernel) -> Scheme:
    """Build the scheme. It compares norms, so it needs no kernel.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the run.

    Returns:
        The scheme.
    """

    def report(target: Target, prepared: Any) -> Arrays:
        return {"norm": target.gradient_norm}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        return [float(report["norm"]) for report in reports]

    def draw(memory: Memory, candidates: Sequence[int], values: Indicators, uniforms: np.ndarray) -> Draw:
        heard = [i for i, value in enumerate(values) if value is not None and np.isfinite(value)]
        norms = np.array([values[i] for i in heard], np.float64)
        found = inclusion(norms, settings.per_round) if len(heard) else norms
        law: list[float | None] = [None] * len(values)
        for i, p in zip(heard, found, strict=True):
            law[i] = float(p)
        drawn = proportional(candidates, law, uniforms, settings.max_probability)
        certain = {candidates[i] for i, p in zip(heard, found, strict=True) if p >= 1} if len(heard) else set()
        if settings.max_probability < 1:
            certain = set()
        first = [client for client in drawn.order if client in certain]
        order = first + [client for client in drawn.order if client not in certain]
        return drawn._replace(order=order, certain=frozenset(certain))

    weights = race_weights if settings.unbiased else None
    return Scheme("optimal", draw, report, indicators, uses=(LIKELIHOOD,), weights=weights)


def inclusion(norms: np.ndarray, places: int) -> np.ndarray:
    """The inclusion probabilities of least variance.

    Args:
        norms: u_k, none of them negative.
        places: m, clients that train in a round.

    Returns:
        The probabilities. They add up to m if at least m norms are above zero.
    """
    count = len(norms)
    if places >= count:
        return np.ones(count)
    if not norms.max(initial=0.0) > 0:
        return np.full(count, places / count)
    order = np.argsort(norms, kind="stable")
    result = np.ones(count)
    for least in range(count, count - places, -1):  # l
        small = order[:least]
        total = norms[small].sum()
        budget = places + least - count
        if total <= 0:
            result[small] = 0.0
            break
        if budget * norms[small[-1]] <= total * (1 + 1e-12):
            result[small] = np.minimum(budget * norms[small] / total, 1.0)
            break
    return result


OPTIMAL = SchemeKind(
    "optimal",
    "norms with inclusion probabilities of least variance; a scalar from each candidate",
    OptimalSettings,
    optimal,
)
