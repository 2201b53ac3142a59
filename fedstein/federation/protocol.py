"""The only round loop: broadcast, report, choose, assign, update, apply. It refers to no scheme or method by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedstein.errors import FedsteinError
from fedstein.evaluation.metrics import no_values
from fedstein.federation.channel import ALL_CLIENTS, POINTS, Channel
from fedstein.federation.client import ClientProgram
from fedstein.federation.engine import NOBODY, Assignment, Engine, Trained
from fedstein.federation.evaluation import Evaluate
from fedstein.federation.records import RoundRecord
from fedstein.federation.secure_round import sum_releases
from fedstein.federation.site_table import SiteTable
from fedstein.federation.speculation import predict_selected, remember_indicators
from fedstein.federation.spill_cache import SpillCache
from fedstein.federation.wire_form import Origin, rounds_off
from fedstein.inference.methods.base import Method
from fedstein.inference.sites.base import Arrays, State
from fedstein.inference.target import SharedTarget
from fedstein.seeds import CHOOSE, POOL, uniforms
from fedstein.selection.base import SCORE, Draw, Scheme
from fedstein.selection.draws import capped_at_median
from fedstein.selection.unbiased import step_factors


class RunState(NamedTuple):
    """The state of a run after a round: everything that the next round needs."""

    round: int  # rounds done
    server: Arrays  # the method's own
    sites: SiteTable
    memory: dict[str, Any]  # the scheme's, plain JSON


class RoundContext(NamedTuple):
    """The objects and settings that every round of a run uses."""

    program: ClientProgram
    engine: Engine
    channel: Channel
    evaluate: Evaluate
    seed: int
    rounds: int
    per_round: int
    pool: int
    evaluate_every: int
    total_every: int  # rounds after which the sums of the sites are computed afresh
    budget: int = 0  # bytes of memory for sites; 0 sets no limit
    barred: frozenset[int] = frozenset()  # clients that take no part
    speculate: int = 0  # candidates that train along with their reports
    join: bool = False  # whether the reports of the next round come with an evaluation by clients
    renew: bool = False  # whether reports that are scores renew the sites of their senders
    max_ratio: float = 0.0  # indicators are cut at this multiple of the round's median; 0 cuts none

    @property
    def method(self) -> Method:
        return self.program.method

    @property
    def scheme(self) -> Scheme:
        return self.program.scheme

    def empty_sites(self) -> SiteTable:
        """The site table before any client has trained."""
        return SiteTable(self.method.shared, SpillCache(self.budget))


class Asked(NamedTuple):
    """The result of asking the candidates for reports."""

    values: list[float | None] | None  # the indicators, aligned with the candidates; None if no client is asked
    reports: dict[int, Arrays]  # the reports that count
    as_sent: dict[int, Arrays]  # the reports as they travelled, where that is smaller
    row_gradients: int
    assigned: Mapping[int, Assignment] = NOBODY  # what candidates trained from before the draw
    early: Mapping[int, Trained] = MappingProxyType({})  # what came of it


class TrainedRound(NamedTuple):
    """The result of the training of a round."""

    server: Arrays
    selected: list[int]
    failed: list[int]
    states: dict[int, State]
    origins: dict[int, Origin]  # what the states were decoded from, where messages are smaller
    row_gradients: dict[str, int]


def first(context: RoundContext) -> RunState:
    """The state before round 1."""
    memory = context.scheme.first(context.seed, len(context.engine.clients))
    return RunState(0, context.program.first_server, context.empty_sites(), memory)


def run_rounds(context: RoundContext, state: RunState) -> Iterator[tuple[RunState, RoundRecord]]:
    """Play rounds until the last.

    Args:
        context: What every round has in common.
        state: Where to go on.

    Yields:
        The state after each round, and its record.

    Raises:
        FedsteinError: Nobody trained in a round, or numbers were not finite. The state before it is still valid.
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
    factors = partial(factors_of, context, round_index, candidates, drawn, numbers)
    if context.method.protection is not None and context.method.protection.apply_sum is not None:
        trained = train_in_secure_sum(context, round_index, state, drawn.order[: context.per_round])
    else:
        trained = train_drawn(context, round_index, state, drawn.order, factors, asked)
        if not trained.selected:
            raise nobody_trained(round_index, trained.failed)
        context.engine.commit(round_index, trained.selected)
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


def pick_candidates(context: RoundContext, round_index: int) -> list[int]:
    """All clients, or a pool of them drawn at random; never the barred ones, nor those that the engine leaves out."""
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


def is_due(context: RoundContext, round_index: int) -> bool:
    """Whether a round ends with an evaluation."""
    return round_index == context.rounds or round_index % context.evaluate_every == 0


def announce_next(context: RoundContext, state: RunState) -> None:
    """Tell the engine what it will be asked for in the next round, so that an evaluation can bring the reports along.

    The next round computes the same broadcast again: the engine's answer to ``ask`` does not depend on this call.
    """
    method, number = context.method, state.round + 1
    if context.scheme.report is None or method.protection is not None:
        return
    arrays = method.broadcast(state.server, context.scheme.uses)
    wire = context.channel.wire.encode("broadcast", number, ALL_CLIENTS, arrays)
    context.engine.announce(number, wire, pick_candidates(context, number))


def estimate_indicators(context: RoundContext, state: RunState, candidates: Sequence[int]) -> list[float | None]:
    """The indicators of a private run, from what clients have released: nobody is asked, and no budget is spent.

    Args:
        context: What every round has in common.
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
    """The state with sites expanded at the particles as clients received them, where their reports are the scores."""
    renew = context.method.spec.site.sums.renew
    assert renew is not None, "the config refuses to renew sites that cannot be renewed"
    scores = {k: report[SCORE] for k, report in reports.items() if k in state.sites}
    sums, renewed = renew(context.channel.heard(state.server), state.sites.accepted, scores)
    origins, heard = state.sites.origins, context.channel.sent
    messages = {
        k: origins[k]._replace(renewed=round_index, report=as_sent[k], heard=heard)
        for k in renewed
        if k in origins and k in as_sent
    }
    return state._replace(server={**state.server, **sums}, sites=state.sites.renew(renewed, messages))


def factors_of(
    context: RoundContext,
    round_index: int,
    candidates: Sequence[int],
    drawn: Draw,
    numbers: np.ndarray,
    selected: Sequence[int],
) -> dict[int, float]:
    """Return the factor on the step of each client that trained; empty if the scheme does not weight steps."""
    if context.scheme.weights is None:
        return {}
    absent = context.barred | context.engine.left_out(round_index)
    rows = {client.id: client.rows for client in context.engine.clients if client.id not in absent}
    weights = context.scheme.weights(candidates, drawn, numbers, selected)
    return step_factors(weights, rows, sum(rows.values()), len(candidates) / len(rows))


def train_drawn(
    context: RoundContext,
    round_index: int,
    state: RunState,
    order: Sequence[int],
    factors: Callable[[Sequence[int]], dict[int, float]],
    asked: Asked,
) -> TrainedRound:
    """Steps 4 to 6: clients in drawn order until enough have trained, some of them along with their reports.

    In a sequential method each client starts from what the one before has handed on. In a parallel one all start alike,
    and the server applies their updates together, their steps times ``factors`` of those who trained.
    """
    method, engine, channel = context.method, context.engine, context.channel
    server, accepted, scale = state.server, state.sites.accepted, context.program.schedule(round_index)
    selected: list[int] = []
    failed: list[int] = []
    updates: dict[int, Arrays] = {}
    states: dict[int, State] = {}
    origins: dict[int, Origin] = {}
    work = {"train": 0, "site": 0}
    early = dict(asked.early)
    for client in order:
        if len(selected) == context.per_round:
            break
        reply: Trained | None
        if client in early and (not method.sequential or not selected):
            cached, reply = asked.assigned[client].cached, early.pop(client)
        else:
            assignment, cached = channel.assignment(client, method.assign(server, accepted.get(client)))
            reply = engine.train(round_index, client, assignment, cached, state.sites)
        if reply is None:
            failed.append(client)
            continue
        update = channel.receive("update", client, reply.update)
        if not is_finite(update):
            raise diverged(round_index, f"client {client}")
        selected.append(client)
        states[client] = {**reply.private, **{name: update[name] for name in method.shared}}
        if method.shared and rounds_off(channel.wire):
            origins[client] = Origin(client, round_index, reply.update, cached)
        if method.sequential:
            server = method.apply(server, accepted, {client: channel.moved(client, update)}, scale)
        else:
            updates[client] = channel.moved(client, update)
        for kind, amount in method.row_gradients(engine.clients[client].rows).items():
            work[kind] += amount
    for client, unused in early.items():
        channel.count_unused(unused.update)
        for kind, amount in method.row_gradients(engine.clients[client].rows).items():
            work[kind] += amount
    if updates:
        if method.weigh is not None:
            scaled = {k: method.weigh(server, updates[k], factor) for k, factor in factors(selected).items()}
            updates = {k: scaled.get(k, update) for k, update in updates.items()}
        server = method.apply(server, accepted, updates, scale)
        if not is_finite(server):
            raise diverged(round_index, "the server")
    return TrainedRound(server, selected, failed, states, origins, work)


def train_in_secure_sum(context: RoundContext, round_index: int, state: RunState, order: Sequence[int]) -> TrainedRound:
    """Steps 4 to 6 of a private round with secure sums: all clients release at once, and only the sum is known."""
    parts, last = (context.program, context.engine, context.channel), round_index == context.rounds
    server, inside, rows = sum_releases(*parts, round_index, state.server, state.sites, order, last)
    missing = [client for client in order if client not in inside]
    return TrainedRound(server, inside, missing, {}, {}, {"train": rows, "site": 0})


def is_finite(arrays: Arrays) -> bool:
    """Whether every number of a message is finite. It is checked on the host, where nothing has to be compiled."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = (np.asarray(array) for array in arrays.values())
        return all(bool(np.isfinite(np.sum(array)) or np.all(np.isfinite(array))) for array in found)


def faults_of(context: RoundContext, round_index: int, capped: Sequence[int]) -> dict[str, Any] | None:
    """Return the faults of a round that was completed in spite of them; None if there were none."""
    found = {**context.engine.faults(round_index), "capped": list(capped)}
    return {kind: clients for kind, clients in found.items() if clients} or None


def nobody_trained(round_index: int, failed: Sequence[int]) -> FedsteinError:
    """The error for a round in which every client that was asked failed."""
    who = f"clients {', '.join(map(str, failed))} were asked and none" if failed else "there was nobody to ask, so none"
    return FedsteinError(
        f"round {round_index}: {who} trained; see which nodes are up and what their logs say, then resume: the rounds "
        "before it and their checkpoint are kept"
    )


def diverged(round_index: int, who: str) -> FedsteinError:
    """The error for training that produced a NaN or an infinity."""
    return FedsteinError(
        f"round {round_index}: {who} returned particles that are not finite (NaN or infinity); the likely cause is a "
        "step size that is too large (algorithm.step_size) or features on very different scales; the rounds before it "
        "and their checkpoint are kept"
    )
