"""A private round with secure sums: everybody is asked at one point, and the server learns the sum of their releases.

The sums are those of ``fedstein.privacy.shared_noise``: each client adds a share of the noise. A sum that too few
clients have completed reveals nothing, but those who had sent their masked part have spent the budget of this visit, as
they cannot know what became of it. The round then ends without a sum, and the run goes on with the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedstein.errors import FedsteinError
from fedstein.federation.channel import size_of
from fedstein.federation.secure_sum.member import least_threshold
from fedstein.inference.sites.base import Arrays
from fedstein.privacy.mechanism import GRADIENT, MOMENTS
from fedstein.privacy.settings import PrivacySettings
from fedstein.privacy.shared_noise import SharedNoise

if TYPE_CHECKING:
    from fedstein.federation.client import ClientProgram
    from fedstein.federation.protocol import RoundContext, RunState


def threshold_of(clients: int, settings: PrivacySettings) -> int:
    """The fewest clients of a private sum that is revealed.

    Args:
        clients: The clients that have begun the sum.
        settings: The settings of ``[privacy]``.

    Returns:
        All but ``privacy.dropouts`` of them, and at least as many as the protocol needs.
    """
    least = least_threshold(clients)
    return least if settings.dropouts is None else max(least, clients - settings.dropouts)


def release_shapes(program: ClientProgram) -> dict[str, tuple[tuple[int, ...], str]]:
    """The names, shapes and dtypes of what a client adds to a private sum."""
    server = program.first_server
    released, triangle = np.shape(server["gradients"])[1], np.shape(server["moments"])[1]
    inputs = int(np.sqrt(2 * triangle))  # triangle = inputs (inputs + 1) / 2
    assert inputs * (inputs + 1) == 2 * triangle
    return {GRADIENT: ((released,), "float64"), MOMENTS: ((inputs, inputs), "float64")}


def sum_releases(
    context: RoundContext, round_index: int, state: RunState, order: Sequence[int]
) -> tuple[Arrays, list[int], int]:
    """One round: ask everybody, and put the sum into the server's state.

    Args:
        context: What every round has in common.
        round_index: The round, from 1.
        state: The state before it.
        order: The clients to ask.

    Returns:
        The server's new state, the clients that are in the sum, and rows times points differentiated.

    Raises:
        FedsteinError: The last round ends and no sum has come about.
    """
    engine: Any = context.engine
    guard, protection = context.program.guard, context.method.protection
    assert guard is not None, "only private runs sum releases"
    assert protection is not None, "only private runs sum releases"
    assert protection.together is not None, "only private runs with secure sums sum releases"
    given = context.method.assign(state.server, None)
    clients = sorted(order)
    sent: Arrays = {}
    for client in clients:
        sent, _ = context.channel.assignment(client, given)
    least = threshold_of(len(clients), guard.settings)
    found = engine.train_together(round_index, clients, sent, state.sites, least)
    if found is None:
        if round_index == context.rounds and not np.any(state.server["factors"]):
            raise FedsteinError(
                "no secure sum of this run has come about, so nothing was learnt; see which nodes are up and what "
                "their logs say. What clients have spent is in their ledgers"
            )
        return state.server, [], 0
    sums, inside, threshold = found
    context.channel.up += 2 * len(inside) * size_of(sums)  # masked numbers have 16 bytes
    factor = SharedNoise("", threshold).factor(len(inside), guard.settings.colluders)
    received = context.channel.wire.decode("assignment", round_index, clients[0], sent)
    server = protection.together(state.server, round_index, received, sums, inside, factor)
    rows = sum(max(context.engine.clients[client].rows, 0) for client in inside)
    return server, inside, rows
