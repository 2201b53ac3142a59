"""Steps 1 to 3 of a round: candidates, the broadcast, their reports, and the indicators that the scheme draws by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from fedstein.federation.channel import ALL_CLIENTS, POINTS, is_finite
from fedstein.federation.engine import NOBODY, Assignment, Trained
from fedstein.federation.round_context import RoundContext, RunState, is_due
from fedstein.federation.speculation import predict_selected
from fedstein.federation.wire_form import rounds_off
from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import SharedTarget
from fedstein.seeds import POOL, uniforms
from fedstein.selection.base import SCORE


class Asked(NamedTuple):
    """The result of asking the candidates for reports."""

    values: list[float | None] | None  # the indicators, aligned with the candidates; None if no client is asked
    reports: dict[int, Arrays]  # the decoded reports whose indicators are finite
    as_sent: dict[int, Arrays]  # the encoded reports, if they are smaller
    row_gradients: int
    assigned: Mapping[int, Assignment] = NOBODY  # the input of candidates that trained before the draw
    early: Mapping[int, Trained] = MappingProxyType({})  # their replies


def pick_candidates(context: RoundContext, round_index: int) -> list[int]:
    """Pick all clients, or a random pool of them. Barred clients and those that the engine leaves out are excluded."""
    absent = context.barred | context.engine.left_out(round_index)
    everyone = [client.id for client in context.engine.clients if client.id not in absent]
    if not context.pool or context.pool >= len(everyone):
        return everyone
    draws = uniforms(context.seed, POOL, round_index, count=len(everyone))
    return sorted(everyone[i] for i in np.argsort(draws)[: context.pool])


def ask_candidates(
    context: RoundContext, round_index: int, state: RunState, candidates: Sequence[int], numbers: np.ndarray
) -> Asked:
    """Steps 1 to 3: broadcast, collect reports, compute indicators. Reports that are not finite do not count."""
    scheme, channel = context.scheme, context.channel
    if scheme.report is None or scheme.indicators is None:
        return Asked(None, {}, {}, 0)
    if context.method.protection is not None:
        return Asked(estimate_indicators(context, state, candidates), {}, {}, 0)
    joined = context.join and round_index > 1 and is_due(context, round_index - 1)
    held = {POINTS: context.method.posterior(state.server)} if joined else {}
    broadcast = channel.broadcast(context.method.broadcast(state.server, scheme.uses), candidates, held)
    assigned = {
        k: Assignment(*channel.assignment(k, context.method.assign(state.server, state.sites.accepted.get(k))))
        for k in predict_selected(scheme, state.memory, candidates, numbers, context.speculate)
    }
    if assigned:
        context.engine.assign_early(assigned)
    replies = context.engine.ask(round_index, broadcast.wire, candidates, state.sites)
    early = context.engine.trained_early(round_index, state.sites) if assigned else {}
    reports = {k: channel.receive("report", k, reply) for k, reply in replies.items()}
    sound = [k for k in candidates if k in reports and is_finite(reports[k])]
    found = scheme.indicators(broadcast.received, [reports[k] for k in sound]) if sound else []
    values = {k: value for k, value in zip(sound, found, strict=True) if np.isfinite(value)}
    rows = sum(context.program.rows_reported(context.engine.clients[k].rows) for k in reports)
    work = rows * broadcast.received["particles"].shape[0]
    as_sent = replies if context.renew and rounds_off(channel.wire) else {}
    found_reports = {k: reports[k] for k in values}
    return Asked([values.get(k) for k in candidates], found_reports, as_sent, work, assigned, early)


def announce_next(context: RoundContext, state: RunState) -> None:
    """Announce the reports of the next round to the engine, so that it can collect them with an evaluation.

    The next round computes the same broadcast again: the engine's answer to ``ask`` does not depend on this call.
    """
    method, number = context.method, state.round + 1
    if context.scheme.report is None or method.protection is not None:
        return
    arrays = method.broadcast(state.server, context.scheme.uses)
    wire = context.channel.wire.encode("broadcast", number, ALL_CLIENTS, arrays)
    context.engine.announce(number, wire, pick_candidates(context, number))


def estimate_indicators(context: RoundContext, state: RunState, candidates: Sequence[int]) -> list[float | None]:
    """Compute the indicators of a private run from the clients' releases. No client is asked; no budget is spent.

    Args:
        context: The objects and settings that all rounds share.
        state: The state of the run.
        candidates: The clients that may be selected.

    Returns:
        One number for each candidate; None for one that has released nothing yet.
    """
    scheme, method = context.scheme, context.method
    assert method.protection is not None, "only private runs have releases"
    assert scheme.report is not None, "the scheme has indicators"
    assert scheme.indicators is not None, "the scheme has indicators"
    target = method.protection.target
    assert target is not None, "the config refuses schemes that choose by what the server cannot know"
    broadcast = method.broadcast(state.server, ())
    prepared = scheme.prepare(SharedTarget(method.spec, broadcast))
    accepted = state.sites.accepted
    known = [k for k in candidates if k in accepted]
    reports = [scheme.report(target(state.server, accepted[k]), prepared) for k in known]
    found = scheme.indicators(broadcast, reports) if known else []
    values = {k: value for k, value in zip(known, found, strict=True) if np.isfinite(value)}
    return [values.get(k) for k in candidates]


def renew_sites(
    context: RoundContext,
    round_index: int,
    state: RunState,
    reports: Mapping[int, Arrays],
    as_sent: Mapping[int, Arrays],
) -> RunState:
    """Return the state with sites renewed by reports, which are the scores at the particles that clients received."""
    renew = context.method.spec.site.sums.renew
    assert renew is not None, "the config refuses to renew sites that cannot be renewed"
    scores = {k: report[SCORE] for k, report in reports.items() if k in state.sites}
    sums, renewed = renew(context.channel.as_decoded(state.server), state.sites.accepted, scores)
    origins, heard = state.sites.origins, context.channel.sent
    messages = {
        k: origins[k]._replace(renewed=round_index, report=as_sent[k], heard=heard)
        for k in renewed
        if k in origins and k in as_sent
    }
    return state._replace(server={**state.server, **sums}, sites=state.sites.renew(renewed, messages))
