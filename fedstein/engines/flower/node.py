"""What a node does with a request: load its own rows, bring its site in line with the server's, compute, reply.

Nothing here knows Flower. A node keeps nothing in memory between requests that it needs: it may be a new process every
time, and after a restart it goes on from its state folder.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

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
from fedstein.engines.flower.store import Kept, OutOfSync, Store
from fedstein.errors import FedsteinError, InputError
from fedstein.holdout import Share, share_out
from fedstein.runs.config import Config, whole_config
from fedstein.runs.wiring import build_model, load_dataset, program_in, split_rows
from fedstein.sites.base import Arrays

BASIS = ("u", "v", "t")  # the set-up arrays that are the rotation of the inputs


class Node(NamedTuple):
    """What a node's operator says: who it is, where its rows are, where it may write."""

    name: str
    state_dir: Path
    partition: int | None = None  # which client of the config's partition it plays, in a trial
    data: str = ""  # its own file
    partitions: int | None = None  # how many clients it takes the trial to have


class Missing(FedsteinError):
    """The node lacks arrays that the server must send again; the text is the status to reply."""


class Rows(NamedTuple):
    """A node's rows, those to train on and those held out, and what the model must know of them."""

    share: Share
    checksum: str  # of all of them, as they are on the node
    classes: int
    task: str

    @property
    def inputs(self) -> int:
        return self.share.x.shape[1]


def read_node(settings: Mapping[str, Any]) -> Node:
    """The ``--node-config`` of a SuperNode."""
    known = {"name", "state-dir", "partition-id", "num-partitions", "data"}
    if unknown := sorted(set(settings) - known):
        raise InputError(f"--node-config has {', '.join(unknown)}; expected some of {', '.join(sorted(known))}")
    partition, path = settings.get("partition-id"), str(settings.get("data", ""))
    if (partition is None) == (not path):
        raise InputError(
            '--node-config needs either data="FILE" (this node\'s own rows) or partition-id=K (a trial), '
            f"got {dict(settings)}"
        )
    if partition is not None and (isinstance(partition, bool) or not isinstance(partition, int) or partition < 0):
        raise InputError(f"--node-config: expected partition-id as a number from 0, got {partition!r}")
    if not settings.get("state-dir"):
        raise InputError('--node-config needs state-dir="FOLDER": where this node keeps its site between requests')
    name = str(settings.get("name", "")) or (f"client-{partition}" if partition is not None else Path(path).stem)
    return Node(name, Path(str(settings["state-dir"])).expanduser(), partition, path, settings.get("num-partitions"))


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


@lru_cache(maxsize=2)
def _dataset(settings: str) -> data.Dataset:
    return load_dataset({"data": json.loads(settings)})


def load_rows(config: Config, node: Node, setup: Arrays) -> Rows:
    """The rows of this node, in the order that every engine has them in, scaled as the run was set up."""
    if node.partition is None:
        return own_rows(config, node, setup)
    if config.data.name == "nodes":
        raise InputError(
            f"this node plays client {node.partition} of a trial, and the run takes nodes with their own files; start "
            'it with data="FILE" instead of partition-id'
        )
    if node.partition >= config.partition.clients:
        raise InputError(
            f"this node plays client {node.partition}, the run has clients 0 to {config.partition.clients - 1}"
        )
    if node.partitions not in (None, config.partition.clients):
        raise InputError(
            f"this node was told of num-partitions={node.partitions}, the run has partition.clients = "
            f"{config.partition.clients}; make them equal, or leave num-partitions out"
        )
    dataset = _dataset(config.data.model_dump_json(exclude_none=True))
    index = split_rows(config, dataset)[node.partition]
    x, y = dataset.train_x[index], dataset.train_y[index]
    share = share_out(x, y, config.evaluate.fraction)
    return Rows(share, digest({"x": x, "y": y}), dataset.classes, dataset.task)


def own_rows(config: Config, node: Node, setup: Arrays) -> Rows:
    """Rows from the node's own file; raw before the run is set up."""
    if config.data.name != "nodes":
        raise InputError(
            f"this node has a file of its own, and the run is a trial on data.name = {config.data.name!r}; start the "
            'run with data.name = "nodes", or the node with partition-id'
        )
    settings = config.data
    expected = data.expectation(settings.features, settings.target, settings.task, settings.labels)
    raw = data.load_rows(node.data, expected)
    share = share_out(raw.x, raw.y, config.evaluate.fraction)
    if "mean" in setup:
        scaling = data.Scaling(setup["mean"], setup["scale"], *setup["target"].tolist())
        x, y = data.scale_rows(share.x, share.y, scaling)
        held_x, held_y = data.scale_rows(share.held_x, share.held_y, scaling)
        share = Share(x, y, held_x, held_y)
        if not all(np.isfinite(array).all() for array in share):
            raise InputError(
                f"{Path(node.data).name}: expected values on the scale of the other nodes' rows, got some that are too "
                "far from it for 32 bits; check the units of the columns"
            )
    return Rows(share, digest({"x": raw.x, "y": raw.y}), len(expected.labels), expected.task)


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
    rows = load_rows(config, node, {})
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
