"""The parts of an answer that several kinds of requests ask for: training, and sums over held-out rows."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from fedstein.federation.channel import POINTS
from fedstein.federation.client import ClientProgram
from fedstein.federation.wire_form import Origin, compact
from fedstein.flower.messages import InvalidMessage, digest
from fedstein.flower.node.policy import refuse_small
from fedstein.flower.node.rows import Node, Rows
from fedstein.flower.node.store import Kept, Store
from fedstein.inference.sites.base import Arrays


def trained(
    program: ClientProgram,
    rows: Rows,
    store: Store,
    number: int,
    state: Arrays | None,
    assignment: Arrays,
    cached: Arrays,
) -> tuple[str, Arrays]:
    """Train, unless the same training has already been done, and store the new site as pending.

    Args:
        program: The program of this client.
        rows: The rows of this node.
        store: The state folder, which must be locked.
        number: The round.
        state: The site that the server accepted last; None if it has accepted none yet.
        assignment: The encoded assignment.
        cached: The encoded broadcast of this round if training uses it; otherwise empty.

    Returns:
        The receipt of the update, and the encoded update.
    """
    asked, pending = digest({**cached, **assignment}), store.pending()
    if pending and (pending.round, pending.asked) == (number, asked):
        return pending.receipt, pending.update
    shard = program.shard(rows.share.x, rows.share.y)
    update, private = program.train(number, store.client, assignment, cached, state, shard)
    sent = plain(update)
    receipt, after = digest(sent), program.state_after(number, store.client, sent, private, assignment, cached)
    origin = Origin(store.client, number, sent, cached)
    stored = compact(program.wire, origin, plain(after), program.method.shared)
    store.write_pending(Kept(number, receipt, asked, stored, sent))
    return receipt, sent


def evaluated(program: ClientProgram, rows: Rows, node: Node, received: Arrays) -> Arrays:
    """Evaluate particles on the held-out rows of this node.

    Args:
        program: The program of this client.
        rows: The rows of this node.
        node: The settings of the node's operator.
        received: The particles.

    Returns:
        The sums from which the server computes metrics.

    Raises:
        InvalidMessage: The received arrays are not particles.
        Refused: The policy asks for more held-out rows.
    """
    refuse_small(node.policy, len(rows.share.held_x), "rows that are held out for evaluation")
    if set(received) != {POINTS} or received[POINTS] is None:
        raise InvalidMessage(f"expected particles to evaluate, got {sorted(received)}")
    held = program.held_out(rows.share.held_x, rows.share.held_y)
    return plain(program.evaluate(jnp.asarray(received[POINTS]), held))


def plain(arrays: Arrays) -> Arrays:
    """Return the arrays as NumPy arrays."""
    return {name: np.asarray(array) for name, array in arrays.items()}
