"""What a node does with a request: load its own rows, bring its site in line with the server's, compute, reply.

Nothing here knows Flower. A node keeps nothing in memory between requests that it needs: it may be a new process every
time, and after a restart it goes on from its state folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from fedstein import data
from fedstein.basis import moments
from fedstein.client import ClientProgram
from fedstein.engines.flower.letters import (
    FORMAT,
    NEEDS_HELD,
    NEEDS_SETUP,
    OK,
    OUT_OF_SYNC,
    REFUSED,
    RESTORE,
    SETUP,
    BadLetter,
    Head,
    Letter,
    along,
    digest,
    main_part,
    value,
)
from fedstein.engines.flower.rows import Node, Rows, load_rows
from fedstein.engines.flower.store import Kept, OutOfSync, Store
from fedstein.errors import FedsteinError
from fedstein.runs.config import Config, whole_config
from fedstein.runs.wiring import build_model, program_in
from fedstein.sites.base import Arrays
from fedstein.start import use_device

BASIS = ("u", "v", "t")  # the set-up arrays that are the rotation of the inputs


class Missing(FedsteinError):
    """The node lacks arrays that the server must send again; the text is the status to reply."""


def handle(request: Letter, node: Node) -> Letter:
    """The reply to any request. What a node cannot do is said in the reply, with the reason."""
    head = request.head
    reply: Head = {key: head.get(key) for key in ("run", "kind", "round", "client")}
    reply = {"format": FORMAT, **{k: v for k, v in reply.items() if v is not None}, "name": node.name}
    try:
        if head.get("format") != FORMAT:
            raise BadLetter(
                f"the server speaks format {head.get('format')!r}, this node {FORMAT}; install the same version"
            )
        kind = value(head, "kind", str)
        if kind not in HANDLERS:
            raise BadLetter(f"unknown request {kind!r}; expected one of {', '.join(HANDLERS)}")
        config = read_config(value(head, "config", str))
        use_device(config.engine.device)
        found, arrays = HANDLERS[kind](request, config, node)
    except Missing as error:
        return Letter({**reply, "status": str(error)}, {})
    except OutOfSync as error:
        return Letter({**reply, "status": OUT_OF_SYNC, "reason": str(error)}, {})
    except FedsteinError as error:
        return Letter({**reply, "status": REFUSED, "reason": str(error)}, {})
    return Letter({**reply, "status": OK, **found}, arrays)


@lru_cache(maxsize=4)
def read_config(text: str) -> Config:
    try:
        return whole_config(tomllib.loads(text), "what the server sent")
    except tomllib.TOMLDecodeError as error:
        raise BadLetter(f"the server's config is not TOML: {error}") from None


def open_store(request: Letter, node: Node) -> Store:
    run, client = value(request.head, "run", str), value(request.head, "client", int)
    if not run.isalnum() or len(run) > 64:
        raise BadLetter(f"expected the name of a run in letters and digits, got {run!r:.80}")
    if node.partition is not None and client != node.partition:
        raise BadLetter(f"this node plays client {node.partition}, the request is for client {client}")
    return Store(node.state_dir, run, client)


def set_up(request: Letter, store: Store) -> Arrays:
    """The arrays that the run was set up with: how rows are scaled, and the basis of the inputs."""
    receipt = value(request.head, "setup", str)
    if not receipt:
        return {}
    if (sent := along(request.arrays, SETUP)) and digest(sent) == receipt:
        store.keep("setup", sent)
        return sent
    arrays = store.kept("setup", receipt)
    if arrays is None:
        raise Missing(NEEDS_SETUP)
    return arrays


def prepare(request: Letter, config: Config, node: Node, store: Store) -> tuple[ClientProgram, Rows]:
    """What this client computes, and its rows."""
    setup = set_up(request, store)
    rows = load_rows(config, node, setup)
    basis = {name: setup[name] for name in BASIS if name in setup}
    model = build_model(config, rows.inputs, rows.classes, rows.task)
    return program_in(config, model, basis or None), rows


def brought_in_line(request: Letter, store: Store) -> Arrays | None:
    """The client's site as the server has it; it may come with the request where the node has lost it."""
    receipt = value(request.head, "accepted", str)
    restored = along(request.arrays, RESTORE)
    kept = Kept(value(request.head, "accepted_round", int), receipt, "", restored, {}) if restored else None
    return store.sync(receipt, kept)


def hello(request: Letter, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Who is there, and whether its rows fit."""
    rows = load_rows(config, node, {}, anew=True)
    build_model(config, rows.inputs, rows.classes, rows.task)
    known = -1 if node.partition is None else node.partition
    return {"rows": len(rows.share.x), "plays": known, "data": rows.checksum}, {}


def scale(request: Letter, config: Config, node: Node) -> tuple[Head, Arrays]:
    """This client's summands of how rows are scaled: without a mean those of the first pass, else of the second."""
    rows = load_rows(config, node, {})
    y, mean = rows.share.y if rows.task == "regression" else None, main_part(request.arrays)
    return {}, data.second_sums(rows.share.x, y, mean) if mean else data.first_sums(rows.share.x, y)


def sums(request: Letter, config: Config, node: Node) -> tuple[Head, Arrays]:
    """This client's summand of the second moments of the inputs; with a probe, their product with it."""
    store = open_store(request, node)
    with store.locked():
        program, rows = prepare(request, config, node, store)
    return {}, {"moments": moments(program.model.prepare(rows.share.x), request.arrays.get("probe"))}


def ask(request: Letter, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Steps 1 and 2 of a round: the report."""
    store, number = open_store(request, node), value(request.head, "round", int)
    with store.locked():
        program, rows = prepare(request, config, node, store)
        state = brought_in_line(request, store)
        received = main_part(request.arrays)
        store.keep("broadcast", received, number)
    shard = program.shard(rows.share.x, rows.share.y)
    report = program.report(number, store.client, program.survey(received), state, shard)
    return {}, plain(report)


def train(request: Letter, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Steps 4 to 6: the update. Asked again for the same thing, the node hands out what it has pending."""
    store, number = open_store(request, node), value(request.head, "round", int)
    with store.locked():
        program, rows = prepare(request, config, node, store)
        state = brought_in_line(request, store)
        received = main_part(request.arrays)
        if held := value(request.head, "held", str):
            before = store.kept("broadcast", held)
            if before is None:
                raise Missing(NEEDS_HELD)
            received = {**before, **received}
        asked, pending = digest(received), store.pending()
        if pending and (pending.round, pending.asked) == (number, asked):
            return {"receipt": pending.receipt}, pending.update
        shard = program.shard(rows.share.x, rows.share.y)
        update, after = program.train(number, store.client, received, state, shard)
        sent = plain(update)
        receipt = digest(sent)
        store.write_pending(Kept(number, receipt, asked, plain(after), sent))
    return {"receipt": receipt}, sent


def evaluate(request: Letter, config: Config, node: Node) -> tuple[Head, Arrays]:
    """What the particles' predictions of this node's held-out rows come to: counts and sums."""
    store = open_store(request, node)
    with store.locked():
        program, rows = prepare(request, config, node, store)
    received = main_part(request.arrays)
    if set(received) != {"particles"}:
        raise BadLetter(f"expected particles to evaluate, got {sorted(received)}")
    held = program.held_out(rows.share.held_x, rows.share.held_y)
    return {}, plain(program.evaluate(jnp.asarray(received["particles"]), held))


def plain(arrays: Arrays) -> Arrays:
    return {name: np.asarray(array) for name, array in arrays.items()}


HANDLERS: dict[str, Callable[[Letter, Config, Node], tuple[Head, Arrays]]] = {
    "hello": hello,
    "scale": scale,
    "sums": sums,
    "ask": ask,
    "train": train,
    "evaluate": evaluate,
}
