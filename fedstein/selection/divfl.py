"""DivFL (Balakrishnan et al. 2022): clients whose gradients represent those of all, by greedy facility location.

A client reports the gradient of its mean loss, N x d. The server adds one client after another to the set S so that

    G(S) = sum_i min_{j in S} ||g_i - g_j||

falls most. The indicator of a client is its place in this order, the first one having the largest. With one client a
round that is the medoid of the gradients, again and again while gradients keep their order: the rule is meant for
several clients a round, or for a pool.

Reference: Balakrishnan, Li, Zhou, Himayat, Smith and Bilmes, "Diverse Client Selection for Federated Learning via
Submodular Maximization", ICLR 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import LIKELIHOOD, Target
from fedstein.selection.base import ReportingSettings, Scheme, SchemeKind
from fedstein.selection.draws import rule_of
from fedstein.stein.kernel import Kernel


class DivflSettings(ReportingSettings):
    """Settings of DivFL."""

    kind: str = "divfl"
    draw: Literal["greedy"] = Field("greedy", description="In the order of the greedy search; there is no other rule.")


def divfl(settings: DivflSettings, kernel: Kernel) -> Scheme:
    """Build the scheme. It compares gradients, not particles, so it needs no kernel.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the run.

    Returns:
        The scheme.
    """

    def report(target: Target, prepared: Any) -> Arrays:
        return {"gradient": target.mean_gradient}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        gradients = np.stack([np.asarray(report["gradient"], np.float64).ravel() for report in reports])
        places = {client: place for place, client in enumerate(facility_order(distances(gradients)))}
        return [float(len(reports) - places[client]) for client in range(len(reports))]

    return rule_of(settings).scheme("divfl", report, indicators, uses=(LIKELIHOOD,))


def distances(gradients: np.ndarray) -> np.ndarray:
    """The distances between the rows, K x K."""
    norms = np.sum(gradients**2, axis=1)
    squares = norms[:, None] + norms[None, :] - 2 * gradients @ gradients.T
    found = np.sqrt(np.maximum(squares, 0.0))
    np.fill_diagonal(found, 0.0)
    return found


def facility_order(distance: np.ndarray) -> list[int]:
    """Return the clients in the order in which the greedy search adds them to S; ties go to the lower number.

    Args:
        distance: The distances, K x K.
    """
    nearest = np.full(len(distance), distance.max(initial=0.0) + 1.0)  # the distance to an empty set
    order: list[int] = []
    left = list(range(len(distance)))
    while left:
        totals = [float(np.minimum(nearest, distance[:, j]).sum()) for j in left]
        chosen = left.pop(int(np.argmin(totals)))
        nearest = np.minimum(nearest, distance[:, chosen])
        order.append(chosen)
    return order


DIVFL = SchemeKind(
    "divfl", "gradients that represent those of all clients; a gradient from each candidate", DivflSettings, divfl
)
