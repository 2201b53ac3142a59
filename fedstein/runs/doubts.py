"""Reasons to doubt a posterior: clients without a site, passes that did not converge, sites that the weights refute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedstein.inference.importance import ENOUGH, SHARE, tail_is_harmless
from fedstein.runs.build import barred_from, structure_of
from fedstein.runs.config import Config
from fedstein.runs.folder import RunFolder
from fedstein.runs.kept_draws import read_weights


def doubts(
    config: Config,
    records: Sequence[Mapping[str, Any]],
    refined: Mapping[str, Any] | None,
    weights: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """List the reasons why draws from the sums of full sites are not draws of the posterior of all clients.

    Passes that did not converge do no harm if weights have confirmed the draws.

    Args:
        config: The config of the run.
        records: Its rounds.
        refined: The summary's entry about the passes that refined the sites; None if there were none.
        weights: The content of ``weights.json``, the check of the sites; None if there was none.

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
        if not refined["settled"] and (weights is None or doubts_of_weights(weights, quoted=True)):
            found.append(
                f"The sites had not settled after {refined['passes']} passes: the remaining distance was "
                f"{refined['to_go']:.2g} posterior standard deviations."
            )
        if refined["unanswered"]:
            found.append(f"{_clients(refined['unanswered'])} did not answer in the passes that refine the sites.")
    elif refined is not None:
        found.append(f"The sites could not be refined: {refined['refused']}.")
    if weights is None and any(record.get("forgotten") is not None for record in records):
        found.append(
            "A client was forgotten, and the sites of the others were not compared with their likelihoods since; train "
            "again with the config of this run for intervals to quote."
        )
    if missing:
        whose = "its" if len(missing) == 1 else "their"
        found.append(f"{_clients(missing)} never trained, so the posterior contains nothing about {whose} rows.")
    return (*found, *doubts_of_weights(weights, quoted=refined is not None))


def doubts_of_run(folder: RunFolder, config: Config, records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """List the ``doubts`` about a finished run, or those that a saved posterior was saved with.

    Args:
        folder: The run folder.
        config: Its config.
        records: Its rounds.

    Returns:
        A sentence for each reason.

    Raises:
        InputError: A file is damaged.
    """
    known = folder.saved_doubts()
    return known if known is not None else doubts(config, records, folder.refined(), read_weights(folder.path))


def doubts_of_weights(weights: Mapping[str, Any] | None, quoted: bool) -> list[str]:
    """List the reasons why the sites do not represent the likelihoods.

    Args:
        weights: The content of ``weights.json``; None if the sites were not checked.
        quoted: Whether intervals are quoted from the weighted draws. If not, draws are used without their weights.

    Returns:
        A sentence for each reason.
    """
    if weights is None:
        return []
    if "refused" in weights:
        return [f"The sites could not be checked: {weights['refused']}."]
    found = [f"The draws that were weighted are doubtful: {problem}" for problem in weights.get("problems", ())]
    if weights["unanswered"]:
        found.append(f"{_clients(weights['unanswered'])} did not answer when the sites were checked.")
    k, ess, draws = weights["k"], weights["ess"], weights["draws"]
    least = ENOUGH if quoted else SHARE * draws
    if not tail_is_harmless(k, ess, draws) or ess < least:
        said = "no finite Pareto k" if k is None else f"Pareto k {k:.2f}"
        mend = "take more rounds or other sites" if quoted else "set sites.expand = 'variational'"
        found.append(
            f"The sites do not match the clients' likelihoods: weighted by the likelihoods, {draws} draws are worth "
            f"{ess:.0f} ({said}), so intervals may be wrong; {mend}."
        )
    return found


def _clients(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
    return f"{len(numbers)} client{'' if len(numbers) == 1 else 's'} ({named})"
