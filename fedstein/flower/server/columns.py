"""Finding the categories, and the values that replace missing ones, from the nodes' counts and sums before round 1."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedstein.data.column_counts import ColumnCounts, add_counts, refuse_mixtures
from fedstein.data.encoding import choose_encoding, known_categories
from fedstein.data.name_sketch import table_shape
from fedstein.data.summed_counts import columns_with_names, first_shapes, total_counts
from fedstein.errors import FedsteinError
from fedstein.federation.engine import FlowerEngineSettings
from fedstein.flower.messages import Envelope, InvalidMessage, Shapes, value
from fedstein.flower.server.events import Events
from fedstein.flower.server.membership import Membership, lifetime
from fedstein.flower.server.requests import Requests
from fedstein.flower.server.secure_sums import secure_total
from fedstein.flower.server.transport import Transport
from fedstein.runs.config import Config
from fedstein.runs.secure_checks import sums_are_secure

MOST_NAMES = 10_000  # the most categories of one column; a longer list from a node is rejected
Counts = dict[str, ColumnCounts]


class Found(NamedTuple):
    """The result of the nodes' counts: keys of ``[data]``, and the number of clients whose number of rows is known."""

    keys: dict[str, Any]
    clients: int


def find_columns(transport: Transport, config: Config, events: Events, run: str) -> Found:
    """Ask every node what its columns hold, and decide how they are coded.

    The nodes send the names of categories with their counts, the number of missing values, and sums of numbers, but no
    rows. The server asks all clients, so that no category is unknown later. With secure sums the server sees only the
    totals.

    Args:
        transport: The connection to the nodes.
        config: The config, in which categories or fills are still to be found.
        events: The log.
        run: The id of the run.

    Returns:
        The keys of ``[data]`` that were found: ``categories`` (``{}`` if no column has categories) and, with
        ``data.missing``, ``fill``; and the number of clients with rows.

    Raises:
        FedsteinError: A node did not answer, or columns cannot be coded; the text says why.
    """
    settings, text, given = config.engine, config.to_toml(), config.data
    assert isinstance(settings, FlowerEngineSettings)
    membership = Membership(transport, run, text, config.partition.clients, events, lifetime(settings))
    membership.gather(settings.start_timeout, settings.on_missing == "wait")
    requests = Requests(transport, membership, settings, run, text, events)
    clients = [info.id for info in membership.infos if info.rows and info.id not in (config.selection.barred or ())]
    known = known_categories(given.categories)
    if sums_are_secure(config):
        every, training, inside = secure_counts(requests, config, clients, known)
        without = [membership.infos[client].name for client in clients if client not in inside]
        events.note("columns", clients=len(inside), without=without)
    else:
        every, training = plain_counts(requests, config, clients, known)
        events.note("columns", clients=len(clients))
    encoding = choose_encoding(
        every,
        training=training,
        named=given.features or (),
        categories=known,
        missing=given.missing,
        coding=given.coding,
        where="the nodes' files",
    )
    keys: dict[str, Any] = {"categories": encoding.categories}  # {} says that no column has categories
    if given.missing is not None:
        keys["fill"] = encoding.fills
    return Found(keys, sum(info.rows > 0 for info in membership.infos))


def secure_counts(
    requests: Requests, config: Config, clients: Sequence[int], known: Mapping[str, Sequence[str]]
) -> tuple[Counts, Counts, list[int]]:
    """Find the counts over all clients by two secure sums: numbers of every column, then the names in text columns.

    A client that drops out is left out. The first sum is not repeated without it, because two sums that differ by one
    client would reveal its counts.

    Args:
        requests: The requests to clients.
        config: The config of the run.
        clients: The clients to ask.
        known: The result of ``known_categories``.

    Returns:
        The counts over all rows and over the rows to train on, and the clients that are in the last sum.

    Raises:
        FedsteinError: Too few clients stayed, a column has text at some clients and numbers at others, or names cannot
            be read.
    """
    names, run = list(config.data.features or ()), requests.run
    total, first = secure_total(requests, "columns", 0, clients, {}, first_shapes(len(names)))
    places = columns_with_names(total, names, known, config.data.missing == "mode")
    table, inside = None, first
    if places:
        form: Shapes = {"names": (table_shape(len(places)), "float64")}
        asked = {"places": np.array(places, np.int64)}
        found, inside = secure_total(requests, "columns", 0, first, asked, form)
        table = found["names"]
    return *total_counts(total, names, table, run, fewer=len(inside) < len(first)), inside


def plain_counts(
    requests: Requests, config: Config, clients: Sequence[int], known: Mapping[str, Sequence[str]]
) -> tuple[Counts, Counts]:
    """Ask every client for its counts, and add them up.

    Args:
        requests: The requests to clients.
        config: The config of the run.
        clients: The clients to ask.
        known: The result of ``known_categories``.

    Returns:
        The counts over all rows and over the rows to train on.

    Raises:
        FedsteinError: A client did not answer, or a column has text at some clients and numbers at others.
    """
    membership, given = requests.membership, config.data
    found = requests.request("columns", 0, clients, {}, {}, requests.settings.report_timeout, need_one=True)
    if lost := [client for client in clients if client not in found.replies]:
        names = ", ".join(membership.infos[client].name for client in lost)
        reasons = [str(found.missing.get(client) or found.rejected.get(client)) for client in lost]
        raise FedsteinError(f"no counts of columns came from {names}: {reasons[0]}; start the run again")
    parts = [read_counts(found.replies[client], given.features or []) for client in clients]
    by_name = {membership.infos[client].name: every for client, (every, _) in zip(clients, parts, strict=True)}
    refuse_mixtures(by_name, known, "the nodes' files")
    return add_counts([every for every, _ in parts]), add_counts([training for _, training in parts])


def read_counts(reply: Envelope, features: list[str]) -> tuple[Counts, Counts]:
    """Read a node's counts from its reply.

    Args:
        reply: The reply to a request for ``"columns"``.
        features: The columns that were asked for.

    Returns:
        The counts over all rows and over the rows to train on.

    Raises:
        InvalidMessage: The reply does not have the required form.
    """
    try:
        every, training = json.loads(value(reply.head, "columns", str))
        return _counts(every, features), _counts(training, features)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidMessage(f"expected counts of columns from a node, got something else ({error})") from None


def _counts(found: Mapping[str, Any], features: list[str]) -> Counts:
    counts = {name: ColumnCounts(**found[name]) for name in features}
    for each in counts.values():
        whole = (each.rows, each.missing, each.numbers, each.integers, each.most, *each.names.values())
        if any(type(number) is not int or number < 0 for number in whole) or len(each.names) > MOST_NAMES:
            raise ValueError("counts must be whole numbers from 0")
        if type(each.total) is not float or each.total != each.total:
            raise ValueError("a sum must be a number")
    return counts
