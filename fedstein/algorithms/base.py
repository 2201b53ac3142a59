"""What an algorithm is: what the server keeps, what it sends, what a client computes, how the server takes it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jax import Array

from fedstein.models.base import Blocks
from fedstein.shard import Shard
from fedstein.sites.base import State, Survey

Arrays = dict[str, Array]  # what travels in a message: named arrays


class Algorithm(NamedTuple):
    """Pure functions; the ones a client runs take a key, what it received, its state and its shard."""

    name: str
    start: Callable[[Array], Arrays]  # key -> the server's state
    broadcast: Callable[[Arrays], Arrays]  # the server's state -> what a client needs of it
    first_state: Callable[[Arrays], State]  # the first broadcast -> the state of a client that was never selected
    blocks: Callable[[Arrays], Blocks]  # what a likelihood report needs of the broadcast alone
    likelihood_score: Callable[[Array, Blocks, Shard, int], Array]  # ..., report rows (0: all) -> N x d
    survey: Callable[[Arrays], Survey]  # what a KSD report needs of the broadcast alone
    tilted_ksd: Callable[[Array, Survey, State, Shard, int], Array]  # -> S(q, p~_k)
    train: Callable[[Array, Arrays, State, Shard, bool], tuple[Arrays, State]]  # ..., whole shard instead of batches
    apply: Callable[[Arrays, Mapping[int, Arrays]], Arrays]  # the server's state, updates by client -> its new state
    serial: bool  # whether each client of a round gets what the one before handed on, or all get the same
    row_gradients: Callable[[int], dict[str, int]]  # rows of the client that trains -> {"train", "site"}
