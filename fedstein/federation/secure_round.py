"""A private round with secure sums: all clients are asked at one point, and the server learns only a sum of releases.

The sums are those of ``fedstein.privacy.shared_noise``: each client adds a share of the noise. A sum that too few
clients have completed reveals nothing. Clients that had sent their masked part have still spent the budget of this
visit, because they cannot know whether the sum was completed. The round then ends without a sum, and the next round
begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedstein.errors import FedsteinError
from fedstein.federation.channel import Channel, size_of
from fedstein.federation.client import ClientProgram
from fedstein.federation.engine import Engine
from fedstein.federation.secure_sum import least_threshold
from fedstein.federation.site_table import SiteTable
from fedstein.inference.sites.base import Arrays
from fedstein.privacy.mechanism import GRADIENT, MOMENTS
from fedstein.privacy.settings import PrivacySettings
from fedstein.privacy.shared_noise import SharedNoise


def threshold_of(clients: int, settings: PrivacySettings) -> int:
    """The fewest clients with which a private sum is revealed.

    Args:
        clients: The clients that have begun the sum.
        settings: The settings of ``[privacy]``.

    Returns:
        All but ``privacy.dropouts`` of them, and at least as many as the protocol needs.
    """
    least = least_threshold(clients)
    return least if settings.dropouts is None else max(least, clients - settings.dropouts)


def release_shapes(program: ClientProgram) -> dict[str, tuple[tuple[int, ...], str]]:
    """The names, shapes and dtypes of a client's summand of a private sum."""
    server = program.first_server
    released, triangle = np.shape(server["gradients"])[1], np.shape(server["moments"])[1]
    inputs = int(np.sqrt(2 * triangle))  # triangle = inputs (inputs + 1) / 2
    assert inputs * (inputs + 1) == 2 * triangle
    return {GRADIENT: ((released,), "float64"), MOMENTS: ((inputs, inputs), "float64")}


class Summed(NamedTuple):
    """The result of a round: the server's new state, the clients in the sum, and the rows that they differentiated."""

    server: Arrays
    inside: list[int]
    rows: int


def sum_releases(
    program: ClientProgram,
    engine: Engine,
    channel: Channel,
    round_index: int,
    server: Arrays,
    sites: SiteTable,
    clients: Sequence[int],
    last: bool,
) -> Summed:
    """Run one round: ask all clients, and put the sum of their releases into the server's state.

    Args:
        program: The clients' program.
        engine: The engine, which reaches the clients.
        channel: The run's channel.
        round_index: The round, from 1.
        server: The server's state.
        sites: The site table, which is empty.
        clients: The clients to ask.
        last: Whether this is the last round.

    Returns:
        The result of the round. If there is no sum, the server's state is unchanged.

    Raises:
        FedsteinError: The last round ends, and no round of the run has given a sum.
    """
    guard, protection = program.guard, program.method.protection
    assert guard is not None, "only private runs sum releases"
    assert protection is not None, "only private runs sum releases"
    assert protection.apply_sum is not None, "only private runs with secure sums sum releases"
    given, asked = program.method.assign(server, None), sorted(clients)
    sent: Arrays = {}
    for client in asked:
        sent, _ = channel.assignment(client, given)
    reach: Any = engine
    found = reach.train_in_secure_sum(round_index, asked, sent, sites, threshold_of(len(asked), guard.settings))
    if found is None:
        if last and not np.any(server["factors"]):
            raise FedsteinError(
                "no secure sum of this run was completed, so nothing was learnt; see which nodes are up and what "
                "their logs say. What clients have spent is in their ledgers"
            )
        return Summed(server, [], 0)
    sums, inside, threshold = found
    channel.up += 2 * len(inside) * size_of(sums)  # masked numbers have 16 bytes
    factor = SharedNoise("", threshold).factor(len(inside), guard.settings.colluders)
    received = channel.wire.decode("assignment", round_index, asked[0], sent)
    after = protection.apply_sum(server, round_index, received, sums, inside, factor)
    return Summed(after, inside, sum(max(engine.clients[client].rows, 0) for client in inside))
