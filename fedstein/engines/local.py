"""The in-process engine: every client's rows and private state in this process, one compiled call after another.

Clients are never vmapped together: that gives other bits, and on a CPU it is no faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array

from fedstein.algorithms.base import Arrays
from fedstein.client import ClientProgram, HeldOut
from fedstein.engines.base import ClientInfo
from fedstein.metrics import Sums
from fedstein.shard import Shard
from fedstein.sites.base import State


class LocalEngine:
    """States exist only for clients that were selected; ``changed`` names those a checkpoint has not seen yet.

    ``held`` has every client's held-out rows, where clients evaluate.
    """

    remote = False

    def __init__(
        self,
        program: ClientProgram,
        shards: Sequence[Shard],
        names: Sequence[str] | None = None,
        held: Sequence[HeldOut] = (),
    ):
        self.program, self.shards, self.held = program, list(shards), list(held)
        self.clients = [
            ClientInfo(k, names[k] if names else f"client-{k}", int(shard.rows)) for k, shard in enumerate(shards)
        ]
        self.states: dict[int, State] = {}
        self.changed: set[int] = set()
        self._pending: dict[int, State] = {}

    @property
    def like(self) -> State:
        return self.program.first_state

    def ask(self, number: int, broadcast: Arrays, candidates: Sequence[int]) -> dict[int, Arrays]:
        seen = self.program.survey(broadcast)
        return {k: self.program.report(number, k, seen, self.states.get(k), self.shards[k]) for k in candidates}

    def train(self, number: int, client: int, assignment: Arrays, held: Arrays) -> Arrays | None:
        received = {**held, **assignment}
        state = self.states.get(client)
        update, self._pending[client] = self.program.train(number, client, received, state, self.shards[client])
        return update

    def commit(self, number: int, clients: Sequence[int]) -> None:
        for client in clients:
            self.states[client] = self._pending[client]
            self.changed.add(client)
        self._pending.clear()

    def evaluate(self, number: int, particles: Array, clients: Sequence[int]) -> dict[int, Sums]:
        return {k: self.program.evaluate(particles, self.held[k]) for k in clients}

    def left_out(self, number: int) -> frozenset[int]:
        return frozenset()

    def faults(self, number: int) -> dict[str, Any]:
        return {}

    def memory(self) -> dict[str, Any]:
        return {}

    def recall(self, memory: dict[str, Any]) -> None:
        pass
