"""What makes the sums of a run doubtful before any draw is made: clients without a site, passes that did not settle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedstein.runs.build import barred_from, structure_of
from fedstein.runs.config import Config


def doubts(config: Config, records: Sequence[Mapping[str, Any]], refined: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Why the sums of full sites are not the posterior of all clients.

    Args:
        config: The config of the run.
        records: Its rounds.
        refined: What the summary says of the passes that refined the sites; None where there were none.

    Returns:
        A sentence for each reason; nothing for runs without full sites.
    """
    if structure_of(config) != "full":
        return ()
    found = []
    trained = {client for record in records for client in record["selected"]}
    missing = [k for k in range(config.partition.clients) if k not in trained and k not in barred_from(config)]
    if refined is not None and "refused" not in refined:
        missing = list(refined["without_site"])
        if not refined["settled"]:
            found.append(
                f"The sites had not settled after {refined['passes']} passes: {refined['to_go']:.2g} posterior "
                "standard deviations were still to go."
            )
        if refined["unanswered"]:
            found.append(f"{_clients(refined['unanswered'])} did not answer in the passes that refine the sites.")
    elif refined is not None:
        found.append(f"The sites could not be refined: {refined['refused']}.")
    if missing:
        found.append(f"{_clients(missing)} never trained, so the posterior knows nothing of their rows.")
    return tuple(found)


def _clients(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
    return f"{len(numbers)} client{'' if len(numbers) == 1 else 's'} ({named})"
