"""Steps 4 to 6 of a round: the drawn clients train, and the server applies their updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from fedstein.errors import FedsteinError
from fedstein.federation.channel import is_finite
from fedstein.federation.engine import Trained
from fedstein.federation.reports import Asked
from fedstein.federation.round_context import RoundContext, RunState
from fedstein.federation.secure_round import sum_releases
from fedstein.federation.wire_form import Origin, rounds_off
from fedstein.inference.sites.base import Arrays, State
from fedstein.selection.base import Draw
from fedstein.selection.unbiased import step_factors


class TrainedRound(NamedTuple):
    """The result of the training of a round."""

    server: Arrays
    selected: list[int]
    failed: list[int]
    states: dict[int, State]
    origins: dict[int, Origin]  # the messages that states were decoded from, if these are smaller
    row_gradients: dict[str, int]


def train_clients(
    context: RoundContext,
    round_index: int,
    state: RunState,
    candidates: Sequence[int],
    asked: Asked,
    drawn: Draw,
    numbers: np.ndarray,
) -> TrainedRound:
    """Let the drawn clients train, and tell the engine which of them the server has accepted.

    Args:
        context: The objects and settings that all rounds share.
        round_index: The round, from 1.
        state: The state of the run.
        candidates: The clients that could be drawn.
        asked: Their reports, and the updates of those that trained before the draw.
        drawn: The order in which clients train, and their probabilities.
        numbers: The random numbers of the draw.

    Returns:
        The server's new state, and the clients that trained. In a private run with secure sums there may be none.

    Raises:
        FedsteinError: No client trained, or numbers were not finite.
    """
    protection = context.method.protection
    if protection is not None and protection.apply_sum is not None:
        return train_in_secure_sum(context, round_index, state, drawn.order[: context.per_round])
    factors = partial(factors_of, context, round_index, candidates, drawn, numbers)
    trained = train_drawn(context, round_index, state, drawn.order, factors, asked)
    if not trained.selected:
        raise nobody_trained(round_index, trained.failed)
    context.engine.commit(round_index, trained.selected)
    return trained


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
    """Steps 4 to 6: clients train in the order of the draw until enough have trained; some trained before the draw.

    In a sequential method, each client starts from the result of the one before. In a parallel method, all clients
    start from the same state, and the server applies their updates together, with each step multiplied by the client's
    entry of ``factors``.
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
            server = method.apply(server, accepted, {client: channel.without_rounding(client, update)}, scale)
        else:
            updates[client] = channel.without_rounding(client, update)
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


def nobody_trained(round_index: int, failed: Sequence[int]) -> FedsteinError:
    """The error for a round in which all clients that were asked failed."""
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
