"""What a client computes, the same on every engine: its report, training and evaluation, each one compiled call.

The compiled functions take the seed, the round and the client as arguments: runs that differ only in these share them.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from fedstein.algorithms.base import Algorithm, Arrays
from fedstein.metrics import Sums, no_sums
from fedstein.models.base import Model
from fedstein.predictive import Predictive, sums_of
from fedstein.schedule import Schedule, constant
from fedstein.seeds import REPORT, START, TRAIN, stream
from fedstein.selection.base import Scheme
from fedstein.shard import Shard, make_shard
from fedstein.sites.base import Own, State


class HeldOut(NamedTuple):
    """A client's held-out rows, ready to be predicted, and their labels or targets."""

    predictive: Predictive
    y: np.ndarray


class ClientProgram:
    """Model, algorithm and scheme as a client runs them. Holds no data; state and shard are passed in."""

    def __init__(
        self,
        model: Model,
        algorithm: Algorithm,
        scheme: Scheme,
        *,
        seed: int,
        batch_size: int,
        rows: int,
        schedule: Schedule | None = None,
    ):
        self.model, self.algorithm, self.scheme = model, algorithm, scheme
        self.seed, self.batch_size, self.report_rows, self.schedule = seed, batch_size, rows, schedule or constant(0)

    @cached_property
    def first_server(self) -> Arrays:
        """The server's state before round 1. Everybody can work it out from the seed."""
        server = _start(self.algorithm, np.uint32(self.seed))
        return {**server, **self.algorithm.first_sums(server["particles"])}

    @cached_property
    def first_state(self) -> State:
        """The state of a client that was never selected: t_k = 1."""
        return self.algorithm.first_state(self.algorithm.broadcast(self.first_server))

    def shard(self, x: np.ndarray, y: np.ndarray) -> Shard:
        return make_shard(self.model.prepare(x), y)

    def held_out(self, x: np.ndarray, y: np.ndarray) -> HeldOut:
        return HeldOut(Predictive(self.model, x, alike=True), y)

    def evaluate(self, particles: Array, held: HeldOut) -> Sums:
        """What the particles' predictions of the held-out rows come to, for ``metrics.metrics_of``."""
        if not len(held.y):
            return no_sums(self.model.task)
        return sums_of(self.model.task, held.predictive(particles), held.y)

    def rows_reported(self, rows: int) -> int:
        """How many of a shard's rows a report differentiates."""
        return min(self.report_rows, rows) if self.report_rows else rows

    def survey(self, received: Arrays) -> Any:
        """The part of a report that depends on the broadcast alone; clients in one process share it."""
        return _survey(self.algorithm, self.scheme, received)

    def report(self, number: int, client: int, seen: Any, state: Own | None, shard: Shard) -> Arrays:
        """Step 2 of section III-A: the importance indicator, or what the server makes it from."""
        rows = self.report_rows if self.report_rows < shard.rows else 0
        own = dict(state) if state else self.first_state
        return _report(self.algorithm, self.scheme, rows, self._ids(number, client), seen, own, shard)

    def train(
        self, number: int, client: int, received: Arrays, state: Own | None, shard: Shard
    ) -> tuple[Arrays, State]:
        """Steps 5 and 6: minimise the local free energy, refit the site."""
        use_all = int(shard.rows) <= self.batch_size
        own = dict(state) if state else self.first_state
        ids, scale = self._ids(number, client), self.schedule(number)
        update, private = _train(self.algorithm, use_all, ids, received, own, shard, scale)
        return update, {**private, **{name: update[name] for name in self.algorithm.shared}}

    def _ids(self, number: int, client: int) -> np.ndarray:
        return np.array([self.seed, number, client], np.uint32)


@partial(jax.jit, static_argnums=0)
def _start(algorithm: Algorithm, seed: Array) -> Arrays:
    return algorithm.start(stream(seed, START))


@partial(jax.jit, static_argnums=(0, 1))
def _survey(algorithm: Algorithm, scheme: Scheme, received: Arrays) -> Any:
    return scheme.survey(algorithm, received)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _report(
    algorithm: Algorithm, scheme: Scheme, rows: int, ids: Array, seen: Any, state: State, shard: Shard
) -> Arrays:
    assert scheme.report is not None, f"{scheme.name} asks for no report"
    return scheme.report(algorithm, stream(ids[0], REPORT, ids[1], ids[2]), seen, state, shard, rows)


@partial(jax.jit, static_argnums=(0, 1))
def _train(
    algorithm: Algorithm, use_all: bool, ids: Array, received: Arrays, state: State, shard: Shard, scale: Array
) -> tuple[Arrays, State]:
    return algorithm.train(stream(ids[0], TRAIN, ids[1], ids[2]), received, state, shard, use_all, scale)


def compilations() -> int:
    """How many programs were compiled for reports and training in this process: constant after the first rounds."""
    return sum(function._cache_size() for function in (_survey, _report, _train))  # type: ignore[attr-defined]
