"""The only round loop: broadcast, report, choose, assign, update, apply. It refers to no scheme or method by name."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from fedstein.evaluation.metrics import no_values
from fedstein.federation.records import RoundRecord
from fedstein.federation.reports import announce_next, ask_candidates, pick_candidates, renew_sites
from fedstein.federation.round_context import RoundContext, RunState, is_due
from fedstein.federation.speculation import remember_indicators
from fedstein.federation.training import train_clients
from fedstein.seeds import CHOOSE, uniforms
from fedstein.selection.base import Draw
from fedstein.selection.draws import capped_at_median


def first(context: RoundContext) -> RunState:
    """The state before round 1."""
    memory = context.scheme.first(context.seed, len(context.engine.clients))
    return RunState(0, context.program.first_server, context.empty_sites(), memory)


def run_rounds(context: RoundContext, state: RunState) -> Iterator[tuple[RunState, RoundRecord]]:
    """Run the rounds that remain.

    Args:
        context: The objects and settings that all rounds share.
        state: The state after the last finished round; before round 1 the result of ``first``.

    Yields:
        The state after each round, and its record.

    Raises:
        FedsteinError: No client trained in a round, or numbers were not finite. The state before that round is still
            valid.
    """
    while state.round < context.rounds:
        state, record = run_round(context, state)
        yield state, record


def run_round(context: RoundContext, state: RunState) -> tuple[RunState, RoundRecord]:
    """One round of section III-A."""
    began, round_index, channel = time.perf_counter(), state.round + 1, context.channel
    channel.begin(round_index)
    candidates = pick_candidates(context, round_index)
    numbers = uniforms(context.seed, CHOOSE, round_index, count=len(candidates))
    asked = ask_candidates(context, round_index, state, candidates, numbers)
    counted, cut = (None, []) if asked.values is None else capped_at_median(asked.values, context.max_ratio)
    believed = {k: report for k, report in asked.reports.items() if k not in {candidates[i] for i in cut}}
    learn = context.scheme.learn
    recalled = state.memory if learn is None or asked.values is None else learn(state.memory, believed)
    asked = asked._replace(reports={})  # each report may be as large as the particles
    if context.renew:
        state = renew_sites(context, round_index, state, believed, asked.as_sent)
    del believed
    drawn: Draw = context.scheme.draw(recalled, candidates, counted, numbers)
    trained = train_clients(context, round_index, state, candidates, asked, drawn, numbers)
    server, sites = trained.server, state.sites.replace(trained.states, trained.origins)
    if round_index % context.total_every == 0:
        server = {**server, **context.method.spec.site.sums.total(sites.accepted)}  # running sums would drift
    memory = context.scheme.after(recalled, trained.selected, context.seed, len(context.engine.clients))
    if context.speculate and asked.values is not None:
        memory = {**memory, **remember_indicators(state.memory, candidates, asked.values)}
    after = RunState(round_index, server, sites, memory)
    due = is_due(context, round_index)
    if due and context.join and round_index < context.rounds:
        announce_next(context, after)
    reading = context.evaluate(round_index, context.method.posterior(server), sites) if due else None
    record = RoundRecord(
        round=round_index,
        selected=trained.selected,
        failed=trained.failed,
        candidates=len(candidates),
        candidate_ids=candidates if len(candidates) < len(context.engine.clients) else None,
        probabilities=drawn.probabilities,
        reports=asked.values,
        faults=faults_of(context, round_index, [candidates[i] for i in cut]),
        metrics=reading.metrics if reading is not None else no_values(context.program.metrics),
        evaluation=reading.evaluation if reading is not None else None,
        bytes_down=channel.down,
        bytes_up=channel.up,
        row_gradients={**trained.row_gradients, "report": asked.row_gradients},
        seconds=time.perf_counter() - began,
        speculated=list(asked.assigned) if context.speculate else None,
    )
    return after, record


def faults_of(context: RoundContext, round_index: int, capped: Sequence[int]) -> dict[str, Any] | None:
    """Return the faults of a round that was completed in spite of them; None if there were none."""
    found = {**context.engine.faults(round_index), "capped": list(capped)}
    return {kind: clients for kind, clients in found.items() if clients} or None
