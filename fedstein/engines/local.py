"""The in-process engine: every client's rows and private state in this process, one compiled call after another.

Clients are never vmapped together: that gives other bits, and on a CPU it is no faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jax import Array

from fedstein.algorithms.base import Arrays
from fedstein.client import ClientProgram, HeldOut
from fedstein.engines.attic import Attic
from fedstein.engines.base import ClientInfo, renew_states
from fedstein.metrics import Sums
from fedstein.shard import Shard
from fedstein.sites.base import State

# Clients whose rows are made before their reports are started: beside a running report NumPy takes five times as long.
GROUP = 50


class LocalEngine:
    """States exist only for clients that were selected; ``changed`` names those a checkpoint has not seen yet.

    ``shards`` may be made when they are asked for; ``sizes`` then says how many rows each has. ``held`` has every
    client's held-out rows, where clients evaluate. States past ``budget`` bytes wait in files.
    """

    remote = False

    def __init__(
        self,
        program: ClientProgram,
        shards: Sequence[Shard],
        names: Sequence[str] | None = None,
        held: Sequence[HeldOut] = (),
        sizes: Sequence[int] | None = None,
        budget: int = 0,
    ):
        self.program, self.shards, self.held = program, shards, list(held)
        sizes = [int(shard.rows) for shard in shards] if sizes is None else sizes
        self.clients = [ClientInfo(k, names[k] if names else f"client-{k}", rows) for k, rows in enumerate(sizes)]
        self.attic = Attic(budget)
        self.states: dict[int, Mapping[str, Array]] = {}
        self.changed: set[int] = set()
        self._pending: dict[int, State] = {}

    @property
    def like(self) -> State:
        return self.program.first_state

    def keep(self, state: State) -> Mapping[str, Array]:
        return self.attic.keep(state)

    def ask(self, number: int, broadcast: Arrays, candidates: Sequence[int]) -> dict[int, Arrays]:
        seen, reports = None, {}
        for start in range(0, len(candidates), GROUP):
            shards = {k: self.shards[k] for k in candidates[start : start + GROUP]}
            seen = seen or self.program.survey(broadcast)
            for k, shard in shards.items():
                reports[k] = self.program.report(number, k, seen, self.states.get(k), shard)
        return reports

    def train(self, number: int, client: int, assignment: Arrays, held: Arrays) -> Arrays | None:
        received = {**held, **assignment}
        state, shard = self.states.get(client), self.shards[client]
        update, self._pending[client] = self.program.train(number, client, received, state, shard)
        return update

    def commit(self, number: int, clients: Sequence[int], renewed: Mapping[int, Arrays]) -> None:
        renew_states(self, renewed)
        for client in clients:
            self.states[client] = self.keep(self._pending[client])
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
