"""The only round loop: broadcast, report, choose, assign, update, apply. It knows no scheme or algorithm by name."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedstein.algorithms.base import Algorithm, Arrays
from fedstein.client import ClientProgram
from fedstein.engines.attic import Part
from fedstein.engines.base import Engine, size_of
from fedstein.errors import FedsteinError
from fedstein.evaluation import Evaluate
from fedstein.metrics import METRICS
from fedstein.seeds import CHOOSE, POOL, uniforms
from fedstein.selection.base import Draw, Scheme
from fedstein.selection.draws import capped_at_median


class RunState(NamedTuple):
    """All that the next round needs, besides the clients' private states."""

    round: int  # rounds done
    server: Arrays
    accepted: dict[int, Mapping[str, Any]]  # of each client: the arrays of its last update that the server remembers
    memory: dict[str, Any]  # the scheme's, plain JSON


class Parts(NamedTuple):
    """The objects that the names in a config became."""

    program: ClientProgram
    engine: Engine
    evaluate: Evaluate
    seed: int
    rounds: int
    per_round: int
    pool: int
    evaluate_every: int
    total_every: int  # rounds after which the server's sums are worked out afresh
    barred: frozenset[int] = frozenset()  # clients that take no part
    renew: bool = False  # whether reports that are scores renew the sites of those that sent them
    max_ratio: float = 0.0  # times the median of a round: what a report is capped at; 0: it is not

    @property
    def algorithm(self) -> Algorithm:
        return self.program.algorithm

    @property
    def scheme(self) -> Scheme:
        return self.program.scheme


class Ledger:
    """Array bytes of a round's messages, by direction; first deliveries only. Evaluation is counted apart."""

    def __init__(self) -> None:
        self.down = self.up = 0


def first(parts: Parts) -> RunState:
    """Before round 1."""
    memory = parts.scheme.first(parts.seed, len(parts.engine.clients))
    return RunState(0, parts.program.first_server, {}, memory)


def play(parts: Parts, state: RunState) -> Iterator[tuple[RunState, dict[str, Any]]]:
    """Rounds until the last; yields the state after each and its record, the line of ``rounds.jsonl``."""
    while state.round < parts.rounds:
        state, record = play_round(parts, state)
        yield state, record


def play_round(parts: Parts, state: RunState) -> tuple[RunState, dict[str, Any]]:
    """One round of section III-A."""
    began, number, ledger = time.perf_counter(), state.round + 1, Ledger()
    candidates = pick_candidates(parts, number)
    broadcast, values, report_rows, reports = ask_candidates(parts, number, state.server, candidates, ledger)
    draws = uniforms(parts.seed, CHOOSE, number, count=len(candidates))
    counted, cut = (None, []) if values is None else capped_at_median(values, parts.max_ratio)
    believed = {k: report for k, report in reports.items() if k not in {candidates[i] for i in cut}}
    state, renewed = renew_sites(parts, state, believed) if parts.renew else (state, {})
    del reports, believed  # each may be as large as the particles
    drawn: Draw = parts.scheme.draw(state.memory, candidates, counted, draws)
    server, selected, failed, work = train_drawn(parts, number, state, drawn.order, broadcast, ledger)
    if not selected:
        raise nobody_trained(number, failed)
    parts.engine.commit(number, selected, {k: arrays for k, arrays in renewed.items() if k not in selected})
    kept = {**state.accepted, **remembered(parts, {*selected, *renewed})}
    if number % parts.total_every == 0:
        server = parts.algorithm.total(server, kept)  # sums that are only ever added to would drift
    memory = parts.scheme.after(state.memory, selected, parts.seed, len(parts.engine.clients))
    last = number == parts.rounds
    due = last or number % parts.evaluate_every == 0
    scores = parts.evaluate(number, server).record if due else dict.fromkeys(METRICS)
    record = {
        "round": number,
        "selected": selected,
        "failed": failed,
        "candidates": len(candidates),
        "candidate_ids": candidates if len(candidates) < len(parts.engine.clients) else None,
        "probabilities": drawn.probabilities,
        "reports": values,
        "faults": faults_of(parts, number, [candidates[i] for i in cut]),
        **scores,
        "bytes_down": ledger.down,
        "bytes_up": ledger.up,
        "row_gradients": {**work, "report": report_rows},
        "seconds": time.perf_counter() - began,
    }
    return RunState(number, server, kept, memory), record


def pick_candidates(parts: Parts, number: int) -> list[int]:
    """All clients, or a pool of them drawn at random; the barred ones never, nor those that the engine leaves out."""
    absent = parts.barred | parts.engine.left_out(number)
    everyone = [client.id for client in parts.engine.clients if client.id not in absent]
    if not parts.pool or parts.pool >= len(everyone):
        return everyone
    draws = uniforms(parts.seed, POOL, number, count=len(everyone))
    return sorted(everyone[i] for i in np.argsort(draws)[: parts.pool])


def ask_candidates(
    parts: Parts, number: int, server: Arrays, candidates: Sequence[int], ledger: Ledger
) -> tuple[Arrays | None, list[float | None] | None, int, dict[int, Arrays]]:
    """Steps 1 to 3: the broadcast, the indicators aligned with the candidates, the rows x particles differentiated,
    and the reports that are sound."""
    scheme = parts.scheme
    if scheme.report is None or scheme.indicators is None:
        return None, None, 0, {}
    broadcast = scheme.broadcast(parts.algorithm, server)
    reports = parts.engine.ask(number, broadcast, candidates)
    ledger.down += len(candidates) * size_of(broadcast)
    ledger.up += sum(size_of(report) for report in reports.values())
    sound = [k for k in candidates if k in reports and is_finite(reports[k])]
    values = dict(zip(sound, scheme.indicators(broadcast, [reports[k] for k in sound]), strict=True)) if sound else {}
    kept = {k: value for k, value in values.items() if np.isfinite(value)}
    rows = sum(parts.program.rows_reported(parts.engine.clients[k].rows) for k in reports)
    work = rows * broadcast["particles"].shape[0]
    return broadcast, [kept.get(k) for k in candidates], work, {k: reports[k] for k in kept}


def renew_sites(parts: Parts, state: RunState, reports: Mapping[int, Arrays]) -> tuple[RunState, dict[int, Arrays]]:
    """Sites expanded at the particles as they are now, for the clients whose reports are their scores there.

    Returns the state to go on with in this round, and the arrays that have changed by client.
    """
    assert parts.algorithm.renew is not None
    assert parts.scheme.score is not None
    scores = {k: report[parts.scheme.score] for k, report in reports.items() if k in state.accepted}
    sums, renewed = parts.algorithm.renew(state.server, state.accepted, scores)
    accepted = {k: {**state.accepted[k], **arrays} for k, arrays in renewed.items()}
    return state._replace(server={**state.server, **sums}, accepted={**state.accepted, **accepted}), renewed


def train_drawn(
    parts: Parts, number: int, state: RunState, order: Sequence[int], broadcast: Arrays | None, ledger: Ledger
) -> tuple[Arrays, list[int], list[int], dict[str, int]]:
    """Steps 4 to 6: clients in drawn order until enough have trained.

    In a serial algorithm each gets the particles the last one handed on; in a parallel one all get the same, and the
    server takes their updates in together. A candidate that holds arrays of the broadcast already, while nothing has
    changed since, is sent only the others. Returns who trained, and who failed.
    """
    algorithm, server, scale = parts.algorithm, state.server, parts.program.schedule(number)
    trained: list[int] = []
    failed: list[int] = []
    updates: dict[int, Arrays] = {}
    work = {"train": 0, "site": 0}
    for client in order:
        if len(trained) == parts.per_round:
            break
        held = broadcast if broadcast is not None and not (algorithm.serial and trained) else {}
        needed = algorithm.assign(server, state.accepted.get(client))
        assignment = {name: array for name, array in needed.items() if name not in held}
        update = parts.engine.train(number, client, assignment, held)
        ledger.down += size_of(assignment)
        if update is None:
            failed.append(client)
            continue
        ledger.up += size_of(update)
        if not is_finite(update):
            raise diverged(number, f"client {client}")
        trained.append(client)
        if algorithm.serial:
            server = algorithm.apply(server, state.accepted, {client: update}, scale)
        else:
            updates[client] = update
        for kind, amount in algorithm.row_gradients(parts.engine.clients[client].rows).items():
            work[kind] += amount
    if updates:
        server = algorithm.apply(server, state.accepted, updates, scale)
        if not is_finite(server):
            raise diverged(number, "the server")
    return server, trained, failed, work


def remembered(parts: Parts, clients: Iterable[int]) -> dict[int, Mapping[str, Any]]:
    """What the server has of these clients: part of the state that the engine keeps, so it is in memory once."""
    shared = parts.algorithm.shared
    return {k: Part(parts.engine.states[k], shared) if shared else {} for k in clients}


def is_finite(arrays: Arrays) -> bool:
    """Whether every number of a message is finite. On the host: nothing has to be compiled for it."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = (np.asarray(array) for array in arrays.values())
        return all(bool(np.isfinite(np.sum(array)) or np.all(np.isfinite(array))) for array in found)


def faults_of(parts: Parts, number: int, capped: Sequence[int]) -> dict[str, Any] | None:
    """What went wrong in a round that went on all the same; null where nothing did."""
    found = {**parts.engine.faults(number), "capped": list(capped)}
    return {kind: clients for kind, clients in found.items() if clients} or None


def nobody_trained(number: int, failed: Sequence[int]) -> FedsteinError:
    """The sentence for a round in which every client that was asked failed."""
    who = f"clients {', '.join(map(str, failed))} were asked and none" if failed else "there was nobody to ask, so none"
    return FedsteinError(
        f"round {number}: {who} trained; see which nodes are up and what their logs say, then resume: the rounds "
        "before it and their checkpoint are kept"
    )


def diverged(number: int, who: str) -> FedsteinError:
    """The sentence a user gets when training produced a NaN or an infinity."""
    return FedsteinError(
        f"round {number}: {who} returned particles that are not finite (NaN or infinity); the likely cause is a step "
        "size that is too large (algorithm.step_size) or features on very different scales; the rounds before it and "
        "their checkpoint are kept"
    )
