"""After the last round: passes over the clients that make their sites variational (``sites.expand = "variational"``).

Nothing that the rounds have left changes: particles, Gaussian and records are what they were. Only the sums are others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedstein.errors import InputError
from fedstein.federation.engine import Engine
from fedstein.federation.protocol import RunState
from fedstein.inference.methods import Conclusion
from fedstein.inference.natural import GaussianSite, add_sites, no_site, read_site
from fedstein.inference.variational import Passes, PassRecord, refine_sites
from fedstein.runs.build import barred_from
from fedstein.runs.config import Config

NUMBER = 8  # bytes: expansions travel in float64
PASSES = Passes()


def refine_conclusion(
    config: Config, engine: Engine, state: RunState, found: Conclusion
) -> tuple[Conclusion, dict[str, Any] | None]:
    """Refine the sites of a run where its config says so.

    Args:
        config: The config of the run.
        engine: How clients are reached. Barred clients are never asked.
        state: The state after the last round.
        found: What the method has made of that state.

    Returns:
        The conclusion with refined sums, and what ``summary.json`` says of the passes; the conclusion as it was, and
        None, where nothing was to be refined. Where refining is impossible the sums stay too, and the reason is given.

    Raises:
        FedsteinError: Nobody answered for too long.
    """
    if getattr(config.sites, "expand", "mean") != "variational" or found.sums is None:
        return found, None
    began, model = time.perf_counter(), engine.program.method.spec.model
    barred, accepted = barred_from(config), state.sites.accepted
    clients = [client for client in engine.clients if client.id not in barred]
    sites = {
        client.id: GaussianSite(*(np.asarray(accepted[client.id][name], np.float64) for name in GaussianSite._fields))
        if client.id in accepted
        else no_site(model.dim)
        for client in clients
    }

    def ask(numbers: list[int], mean: np.ndarray, covariance: np.ndarray) -> dict[int, GaussianSite]:
        replies = engine.expand(state.round, mean, covariance, numbers, state.sites)
        return {client: read_site(reply) for client, reply in replies.items()}

    try:
        refined = refine_sites(
            model,
            ask,
            sites,
            rows={client.id: client.rows for client in clients},
            passes=PASSES,
            seed=config.seed,
            start=np.asarray(found.server["particles"], np.float64).mean(axis=0),
            number=NUMBER,
        )
    except InputError as error:
        return found, {"refused": str(error)}
    summary = {
        **describe_passes(refined.records, [client.id for client in engine.clients]),
        "settled": refined.settled,
        "without_site": [client for client, site in refined.sites.items() if not site.precision.any()],
        "seconds": time.perf_counter() - began,
    }
    return found._replace(sums=add_sites(refined.sites, model.dim)), summary


def describe_passes(records: Sequence[PassRecord], clients: Sequence[int]) -> dict[str, Any]:
    """What the passes came to, and how often each client was asked."""
    return {
        "passes": len(records),
        "to_go": records[-1].to_go,
        "asked": sum(len(record.asked) for record in records),
        "asked_counts": [sum(client in record.asked for record in records) for client in clients],
        "bytes_down": sum(record.bytes_down for record in records),
        "bytes_up": sum(record.bytes_up for record in records),
        "row_gradients": sum(record.row_gradients for record in records),
        "unanswered": sorted({client for record in records for client in record.unanswered}),
    }
