"""Step weights that make the expected step of a round equal to the step of all clients.

A method that averages updates by rows would take the step sum_k (n_k / N) D_k if all K clients trained. Of the clients
S that a rule draws it takes

    sum_{k in S} (n_k / N) w_k D_k,      w_k = 1 / P_k                   where one client is drawn (Ren et al. 2020),
                                         w_k = 1 / (1 - exp(-P_k tau))   where several are,

whose expectation over the draw is the step of all. Several clients are drawn without replacement by an exponential
race: client k arrives at time E_k / P_k, E_k ~ Exp(1). Given tau, the first arrival that was not drawn, a drawn client
had the probability 1 - exp(-P_k tau) of coming before it (Cohen and Kaplan 2007, "Summarizing data using bottom-k
sketches", rank conditioning). Clients that are certain to train have weight 1. With a pool of candidates the step is
that of the pool, times K / candidates. Clients that fail are not accounted for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field

from fedstein.selection.base import Draw, ReportingSettings


class UnbiasedSettings(ReportingSettings):
    """The keys of schemes whose authors weigh the steps of the clients that were drawn."""

    unbiased: bool = Field(
        False,
        description="Whether steps are weighted by one over the probability of the draw, so that the expected step is "
        "that of all clients. For methods that average updates by rows, with draw = 'proportional'.",
    )


def race_weights(
    candidates: Sequence[int], drawn: Draw, uniforms: np.ndarray, selected: Sequence[int]
) -> dict[int, float]:
    """The weight w_k of every client that trains.

    Args:
        candidates: The clients that were asked.
        drawn: Their probabilities, and who is certain to train.
        uniforms: The uniform numbers behind the draw, one for each candidate.
        selected: The clients that trained.

    Returns:
        One weight for each of them.
    """
    probabilities = drawn.probabilities or [1.0] * len(candidates)
    rest = {
        client: (p, -np.log(u) / p)
        for client, p, u in zip(candidates, probabilities, uniforms, strict=True)
        if p > 0 and client not in drawn.certain
    }
    raced = [client for client in selected if client in rest]
    weights = dict.fromkeys(selected, 1.0)
    left = [time for client, (_, time) in rest.items() if client not in raced]
    if not left:
        return weights  # all clients train
    if len(raced) == 1:
        total = sum(p for p, _ in rest.values())
        return weights | {raced[0]: total / rest[raced[0]][0]}
    threshold = min(left)
    return weights | {client: float(-1 / np.expm1(-rest[client][0] * threshold)) for client in raced}


def step_factors(weights: Mapping[int, float], rows: Mapping[int, int], whole: int, share: float) -> dict[int, float]:
    """Return the factor on the step of each update, before updates are averaged by rows.

    The average over S divides by the rows of S; the factor w_k n_S / N turns that into sum_k (n_k / N) w_k D_k.

    Args:
        weights: w_k of the clients S that trained.
        rows: Their rows n_k.
        whole: N, the rows of all clients that can take part.
        share: Candidates divided by clients that can take part.

    Returns:
        One factor for each client.
    """
    total = sum(rows[client] for client in weights)
    return {client: weight * total / (whole * share) for client, weight in weights.items()}
