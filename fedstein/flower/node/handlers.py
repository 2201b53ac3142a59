"""Handling of requests on a node: load the rows, choose the site that the server accepted last, compute, and reply.

This module does not use Flower. State between requests is kept in the node's state folder, because every request may be
handled by a new process.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from fedstein import data
from fedstein.data.basis import moments
from fedstein.errors import FedsteinError
from fedstein.federation.channel import POINTS
from fedstein.federation.client import ClientProgram
from fedstein.federation.secure_sum.member import Member
from fedstein.federation.wire_form import expand as expand_site
from fedstein.flower.messages import (
    BROADCAST,
    EVALUATE,
    FORMAT,
    HELD,
    NEEDS_HELD,
    NEEDS_SETUP,
    OK,
    OUT_OF_SYNC,
    REFUSED,
    RESTORE,
    SETUP,
    TRAIN,
    Envelope,
    Head,
    InvalidMessage,
    check_arrays,
    digest,
    value,
    with_prefix,
    without_prefix,
)
from fedstein.flower.node.answers import evaluated, plain, trained
from fedstein.flower.node.columns import column_sums, columns
from fedstein.flower.node.policy import check_request, messages_of
from fedstein.flower.node.private import hello_private, node_guard, refuse_unprotected, release_share
from fedstein.flower.node.rows import Node, Rows, expected_rows, load_rows, needs_column_counts, policy_of
from fedstein.flower.node.secure import answer_phase
from fedstein.flower.node.store import Kept, OutOfSync, Store
from fedstein.inference.points import shapes_of
from fedstein.inference.sites.base import Arrays
from fedstein.registry import only_plugins
from fedstein.runs.build import build_model, program_in
from fedstein.runs.config import Config, whole_config
from fedstein.runs.jax_setup import use_device
from fedstein.runs.secure_checks import summed_by, sums_are_secure

BASIS = ("u", "v", "t")  # the set-up arrays that are the rotation of the inputs


class Missing(FedsteinError):
    """The node lacks arrays that the server must send again; the text is the status to reply."""


def handle(request: Envelope, node: Node) -> Envelope:
    """Answer a request.

    Args:
        request: The request of the server.
        node: The settings of the node's operator. A request that the operator does not allow is refused before any row
            is read, and plug-ins that the operator has not listed are not imported.

    Returns:
        The reply. If the node cannot answer the request, the reply has the reason.
    """
    head, client = request.head, request.head.get("client")
    if node.plays and isinstance(client, int) and client in node.plays:
        node = node.as_client(client)
    reply: Head = {key: head.get(key) for key in ("run", "kind", "round", "client")}
    reply = {"format": FORMAT, **{k: v for k, v in reply.items() if v is not None}, "name": node.name}
    try:
        policy = policy_of(node)
        node = node._replace(policy=policy, plugins=node.plugins if policy is None else tuple(policy.plugins))
        with only_plugins(node.plugins):
            found, arrays = answer(request, node)
    except Missing as error:
        return Envelope({**reply, "status": str(error)}, {})
    except OutOfSync as error:
        return Envelope({**reply, "status": OUT_OF_SYNC, "reason": str(error)}, {})
    except FedsteinError as error:
        return Envelope({**reply, "status": REFUSED, "reason": str(error)}, {})
    return Envelope({**reply, "status": OK, **found}, arrays)


def answer(request: Envelope, node: Node) -> tuple[Head, Arrays]:
    """Answer a request by the handler of its kind.

    Args:
        request: The request of the server.
        node: The settings of the node's operator.

    Returns:
        Entries of the reply's head, and its arrays.

    Raises:
        Missing: The server must send arrays again.
        OutOfSync: The node does not have the site that the server accepted last.
        FedsteinError: The node cannot answer the request; the text says why.
    """
    head = request.head
    if head.get("format") != FORMAT:
        raise InvalidMessage(
            f"the server speaks format {head.get('format')!r}, this node {FORMAT}; install the same version"
        )
    kind = value(head, "kind", str)
    if kind not in HANDLERS:
        raise InvalidMessage(f"unknown request {kind!r}; expected one of {', '.join(HANDLERS)}")
    config = read_config(value(head, "config", str), node.plugins)
    if node.policy is not None:
        check_request(node.policy, kind, config)
    if sums_are_secure(config) and kind in SUMMANDS:
        raise InvalidMessage(f"the run's config has privacy.sums = 'secure': {kind!r} is not sent as it is")
    refuse_unprotected(kind, config, node)
    use_device(config.engine.device)
    return HANDLERS[kind](request, config, node)


@lru_cache(maxsize=4)
def read_config(text: str, plugins: tuple[str, ...]) -> Config:
    """Read the config that the server sent.

    Args:
        text: TOML.
        plugins: The plug-ins that the node allows; part of the key under which the config is cached.

    Returns:
        The config.

    Raises:
        FedsteinError: The text is not the config of a run, or names a plug-in that is not allowed.
    """
    try:
        return whole_config(tomllib.loads(text), "what the server sent")
    except tomllib.TOMLDecodeError as error:
        raise InvalidMessage(f"the server's config is not TOML: {error}") from None


def open_store(request: Envelope, node: Node) -> Store:
    """The node's state for the run and the client of the request.

    Raises:
        InvalidMessage: The request names no valid run, or a client that this node does not play.
    """
    run, client = value(request.head, "run", str), value(request.head, "client", int)
    if not run.isalnum() or len(run) > 64:
        raise InvalidMessage(f"expected the name of a run in letters and digits, got {run!r:.80}")
    node = node.as_client(client)
    if node.partition is not None and client != node.partition:
        raise InvalidMessage(f"this node plays client {node.partition}, the request is for client {client}")
    return Store(node.state_dir, run, client)


def set_up(request: Envelope, store: Store) -> Arrays:
    """The set-up arrays of the run: the scaling of the rows, and the basis of the inputs.

    Raises:
        Missing: The node does not have them, and the request does not contain them.
    """
    receipt = value(request.head, "setup", str)
    if not receipt:
        return {}
    if (sent := with_prefix(request.arrays, SETUP)) and digest(sent) == receipt:
        store.keep("setup", sent)
        return sent
    arrays = store.kept("setup", receipt)
    if arrays is None:
        raise Missing(NEEDS_SETUP)
    return arrays


def prepare(request: Envelope, config: Config, node: Node, store: Store) -> tuple[ClientProgram, Rows]:
    """Return the client's program and rows. ``set_up`` and ``load_rows`` describe the errors."""
    setup = set_up(request, store)
    rows = load_rows(config, node, setup)
    basis = {name: setup[name] for name in BASIS if name in setup}
    model = build_model(config, rows.inputs, rows.classes, rows.task)
    program = program_in(config, model, basis or None)
    if config.privacy.on:
        program.guard = node_guard(config, node, store.run)
    return program, rows


def accepted_site(request: Envelope, store: Store, program: ClientProgram) -> Arrays | None:
    """The client's site that the server accepted last; None if it has accepted none yet.

    If the node has lost it, the request contains it.

    Raises:
        OutOfSync: The node does not have that site.
    """
    receipt = value(request.head, "accepted", str)
    restored, for_good = with_prefix(request.arrays, RESTORE), not request.head.get("evaluate")
    kept = Kept(value(request.head, "accepted_round", int), receipt, "", restored, {}) if restored else None
    found = store.sync(receipt, kept, for_good)
    return found if found is None else expand_site(program.wire, store.client, found)[0]


def hello(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Introduce the node and check its rows. Before columns have been counted, check only that they can be counted.

    A node that plays several clients introduces all of them.
    """
    if config.privacy.on:
        return hello_private(config, node), {}
    if needs_column_counts(config):
        found, _ = columns(request, config, node)
        counted = json.loads(str(found["columns"]))[0]
        return {"rows": max(each["rows"] for each in counted.values()), "plays": -1, "data": digest({})}, {}
    if node.plays:
        return {"several": json.dumps([introduce(config, node.as_client(client)) for client in node.plays])}, {}
    rows = load_rows(config, node, {}, anew=True)
    build_model(config, rows.inputs, rows.classes, rows.task)
    known = -1 if node.partition is None else node.partition
    return {"rows": len(rows.share.x), "plays": known, "data": rows.checksum}, {}


def introduce(config: Config, node: Node) -> Head:
    """Return the answer to a greeting for one of several clients of this node."""
    rows = load_rows(config, node, {}, anew=True)
    build_model(config, rows.inputs, rows.classes, rows.task)
    return {"name": node.name, "rows": len(rows.share.x), "plays": node.partition, "data": rows.checksum}


def scale(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Compute this client's summands of the means or, if the request contains the means, of the scales."""
    rows = load_rows(config, node, {})
    y, mean = rows.share.y if rows.task == "regression" else None, without_prefix(request.arrays)
    if mean:
        return {}, data.second_sums(rows.share.x, y, mean)
    encoding = expected_rows(config).encoding if config.data.name == "nodes" else None
    return {}, data.first_sums(rows.share.x, y, np.nan if encoding is None else encoding.binary_fills)


def sums(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Compute this client's summand of the second moments of the inputs, or of their product with a probe."""
    store = open_store(request, node)
    with store.locked():
        program, rows = prepare(request, config, node, store)
    return {}, {"moments": moments(program.model.prepare(rows.share.x), request.arrays.get("probe"))}


def ask(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Steps 1 and 2 of a round: the report. The head can also ask for training, or for the last round's evaluation."""
    store, number = open_store(request, node), value(request.head, "round", int)
    with store.locked():
        program, rows = prepare(request, config, node, store)
        state = accepted_site(request, store, program)
        received = without_prefix(request.arrays)
        store.keep("broadcast", received, number)
    shard = program.shard(rows.share.x, rows.share.y)
    prepared = program.prepare(number, received)
    report = plain(program.report(number, store.client, prepared, state, shard))
    if "train" in request.head:
        cached = received if value(request.head, "train", str) == BROADCAST else {}
        with store.locked():
            receipt, update = trained(program, rows, store, number, state, with_prefix(request.arrays, TRAIN), cached)
        return {"receipt": receipt}, {**report, **{TRAIN + name: array for name, array in update.items()}}
    if not request.head.get("evaluate"):
        return {}, report
    if "evaluate" not in messages_of(config):
        raise InvalidMessage("the run's config asks for no evaluation by clients: evaluate.where is not 'clients'")
    found = evaluated(program, rows, node, with_prefix(request.arrays, EVALUATE) or {POINTS: received.get(POINTS)})
    return {}, {**report, **{EVALUATE + name: array for name, array in found.items()}}


def train(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Steps 4 to 6 of a round: the update. A repeated request gets the update that was computed before."""
    store, number = open_store(request, node), value(request.head, "round", int)
    with store.locked():
        program, rows = prepare(request, config, node, store)
        state = accepted_site(request, store, program)
        assignment, cached = without_prefix(request.arrays), with_prefix(request.arrays, HELD)
        if held := value(request.head, "held", str):
            before = store.kept("broadcast", held)
            if before is None:
                raise Missing(NEEDS_HELD)
            cached = before
        receipt, sent = trained(program, rows, store, number, state, assignment, cached)
    return {"receipt": receipt}, sent


def evaluate(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Evaluate the particles on this node's held-out rows; the reply has counts and sums."""
    store = open_store(request, node)
    with store.locked():
        program, rows = prepare(request, config, node, store)
    return {}, evaluated(program, rows, node, without_prefix(request.arrays))


def for_passes(request: Envelope, config: Config, node: Node, what: str) -> tuple[ClientProgram, Rows, Arrays]:
    """Return what a request of the variational passes needs: the program, this node's rows, and the received arrays.

    Raises:
        InvalidMessage: The config of the run has no such passes.
    """
    if getattr(config.sites, "expand", "mean") != "variational":
        raise InvalidMessage(f"the run's config asks for no {what}: sites.expand is not 'variational'")
    store = open_store(request, node)
    with store.locked():
        program, rows = prepare(request, config, node, store)
    return program, rows, without_prefix(request.arrays)


def expand(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Expand this node's likelihood on average over q, if the config of the run asks for it."""
    program, rows, received = for_passes(request, config, node, "expansions")
    dim = program.model.dim
    check_arrays(received, {"mean": ((dim,), "float32"), "covariance": ((dim * (dim + 1) // 2,), "float32")})
    return {}, plain(program.expand(received, program.shard(rows.share.x, rows.share.y)))


def expand_nodes(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Expand this node's likelihood over several q, if the config of the run asks for it."""
    program, rows, received = for_passes(request, config, node, "expansions")
    dim = program.model.dim
    count = len(received["means"]) if np.ndim(received.get("means", 0)) else 1
    triangles = (count, dim * (dim + 1) // 2)
    check_arrays(received, {"means": ((count, dim), "float32"), "covariances": (triangles, "float32")})
    return {}, plain(program.expand_at_nodes(received, program.shard(rows.share.x, rows.share.y)))


def weigh(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Compute this node's log-likelihood at points, if the config of the run asks for it."""
    program, rows, received = for_passes(request, config, node, "log-likelihoods")
    check_arrays(received, shapes_of(program.model, received))
    return {}, plain(program.weigh(received, program.shard(rows.share.x, rows.share.y)))


def secure(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Answer one phase of a secure sum of replies to a request of ``SUMMANDS``, or to a private ``train``."""
    of = value(request.head, "of", str)
    if not sums_are_secure(config) or of not in summed_by(config):
        raise InvalidMessage(f"the run's config asks for no secure sum of {of!r:.40}")

    store = open_store(request, node)

    def compute(asked: Envelope, member: Member) -> Arrays:
        if of != "train":
            refuse_unprotected(of, config, node)
            return SUMMANDS[of](asked, config, node)[1]
        with store.locked():
            program, rows = prepare(asked, config, node, store)
        return release_share(program, program.shard(rows.share.x, rows.share.y), asked, member)

    return {}, answer_phase(request, store, compute)


# Requests whose replies the server only adds up.
SUMMANDS = {"columns": column_sums, "scale": scale, "sums": sums, "evaluate": evaluate}
HANDLERS: dict[str, Callable[[Envelope, Config, Node], tuple[Head, Arrays]]] = {
    "hello": hello,
    "columns": columns,
    "scale": scale,
    "sums": sums,
    "ask": ask,
    "train": train,
    "evaluate": evaluate,
    "expand": expand,
    "nodes": expand_nodes,
    "weigh": weigh,
    "secure": secure,
}
