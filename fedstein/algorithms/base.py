"""What an algorithm is: what the server keeps, what it sends, what a client computes, how the server takes it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jax import Array

from fedstein.models.base import Blocks
from fedstein.shard import Shard
from fedstein.sites.base import Arrays, Own, State, Survey

Accepted = Mapping[int, Own]  # what the server last took in of each client: the arrays that ``shared`` names


class Algorithm(NamedTuple):
    """Pure functions; the ones a client runs take a key, what it received, its state and its shard."""

    name: str
    start: Callable[[Array], Arrays]  # key -> the server's particles
    first_sums: Callable[[Array], Arrays]  # the particles -> what the server keeps beside them, on the host
    broadcast: Callable[[Arrays], Arrays]  # the server's state -> the particles, for reports on the likelihood
    tilted_broadcast: Callable[[Arrays], Arrays]  # ... and what reports on the tilted target need besides
    assign: Callable[[Arrays, Own | None], Arrays]  # ..., what was accepted of the client -> what training needs
    first_state: Callable[[Arrays], State]  # the first broadcast -> the state of a client that was never selected
    blocks: Callable[[Arrays], Blocks]  # what a likelihood report needs of the broadcast alone
    likelihood_score: Callable[[Array, Blocks, Shard, int], Array]  # ..., report rows (0: all) -> N x d
    survey: Callable[[Arrays], Survey]  # what a KSD report needs of the broadcast alone
    tilted_ksd: Callable[[Array, Survey, State, Shard, int], Array]  # -> S(q, p~_k)
    # key, (particles, their kernel), state, shard, report rows -> how much a client disagrees with its own site
    innovation: Callable[[Array, tuple[Blocks, Array], State, Shard, int], Array] | None
    # key, received, state, shard, whether to use all rows, step scale -> update, private state
    train: Callable[..., tuple[Arrays, State]]
    shared: tuple[str, ...]  # the arrays of an update that the server remembers, and the client as part of its state
    apply: Callable[[Arrays, Accepted, Mapping[int, Arrays], Any], Arrays]  # ..., before, updates, step scale -> new
    total: Callable[[Arrays, Accepted], Arrays]  # the server's state with its sums worked out afresh
    # ..., what was accepted, scores of clients' likelihoods at the particles -> the sums, what is accepted of them now
    renew: Callable[[Arrays, Accepted, Mapping[int, Any]], tuple[Arrays, dict[int, Arrays]]] | None
    serial: bool  # whether each client of a round gets what the one before handed on, or all get the same
    row_gradients: Callable[[int], dict[str, int]]  # rows of the client that trains -> {"train", "site"}
