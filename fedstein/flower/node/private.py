"""A node in private runs: its secret, its ledger, its budget, and a greeting that reveals nothing about its rows."""

from __future__ import annotations

import numpy as np

from fedstein.data.shard import Shard
from fedstein.errors import InputError
from fedstein.federation.client import ClientProgram
from fedstein.federation.secure_sum.member import Member
from fedstein.flower.messages import Envelope, Head, digest, value, without_prefix
from fedstein.flower.node.rows import Node, load_rows, needs_column_counts
from fedstein.privacy.guard import Guard, Unprotected, refuse
from fedstein.privacy.noise import node_secret
from fedstein.privacy.shared_noise import SharedNoise
from fedstein.runs.build import build_model
from fedstein.runs.config import Config

FOLDER = "privacy"  # in the state folder: the secret and the ledger, which outlive every run
UNKNOWN = -1  # in place of the number of rows, if it is not public


def refuse_unprotected(kind: str, config: Config, node: Node) -> None:
    """Refuse, before any row is read, a request whose answer would not be protected.

    Args:
        kind: The kind of the request.
        config: The config that the server sent.
        node: The settings of the node's operator.

    Raises:
        Unprotected: The run is private, but the answer would not be protected; or the run is not private, and the
            operator has set a budget, so that this node answers only private runs.
    """
    refuse(kind, config.privacy)
    if node.budget is not None and not config.privacy.on:
        raise Unprotected(
            f"this node has a privacy budget (epsilon {node.budget[0]:g}, delta {node.budget[1]:g}), so it answers "
            "private runs alone; set privacy.kind = 'record' or 'client'"
        )


def node_guard(config: Config, node: Node, run: str) -> Guard:
    """The guard of this node. Its noise comes from the node's own secret, and its ledger is in the state folder."""
    folder = node.state_dir / FOLDER
    return Guard(config.privacy, node_secret(folder), folder=folder, run=run, budget=node.budget, single=True)


def release_share(program: ClientProgram, shard: Shard, request: Envelope, member: Member) -> dict[str, np.ndarray]:
    """Compute this node's summand of a private round: its sums with its share of the noise, recorded in its ledger.

    Args:
        program: The program of this client.
        shard: Its rows.
        request: The request, with the point at which gradients are taken.
        member: The state of the secure sum.

    Returns:
        The summand, which is sent only with masks.
    """
    shared = SharedNoise(member.session, member.threshold)
    number = value(request.head, "round", int)
    return program.release_share(number, member.me, without_prefix(request.arrays), shard, shared)


def hello_private(config: Config, node: Node) -> Head:
    """The greeting of a private run: no digest of the rows, and their number only if it is public.

    Raises:
        InputError: The rows do not fit the run.
    """
    known = UNKNOWN if node.partition is None else node.partition
    if node.plays:
        raise InputError("a private run needs a node of its own for every client; use partition-id=K")
    if needs_column_counts(config):  # columns are counted first, if their counts are public
        refuse("columns", config.privacy)
        return {"rows": UNKNOWN, "plays": known, "data": digest({})}
    rows = load_rows(config, node, {}, anew=True)
    build_model(config, rows.inputs, rows.classes, rows.task)
    count = len(rows.share.x) if "rows" in config.privacy.public else UNKNOWN
    return {"rows": count, "plays": known, "data": digest({})}
