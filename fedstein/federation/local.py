"""The in-process engine: every client's rows in this process, one compiled call after another.

Clients are never combined by vmap: this would give other bits, and on a CPU it is not faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedstein.data.shard import Shard
from fedstein.evaluation.metrics import Sums
from fedstein.federation.client import ClientProgram, HeldOut
from fedstein.federation.engine import NOBODY, Assignment, ClientInfo, Trained
from fedstein.federation.site_table import SiteTable
from fedstein.inference.natural import implausible_nodes, implausible_site
from fedstein.inference.sites.base import Arrays, State
from fedstein.privacy.shared_noise import SharedNoise

# Clients whose rows are made before their reports start, because NumPy is five times slower while a report runs.
GROUP = 50


class LocalEngine:
    """Plays every client in this process. It has only their rows; their states are in the site table."""

    remote = False

    def __init__(
        self,
        program: ClientProgram,
        shards: Sequence[Shard],
        names: Sequence[str] | None = None,
        held: Sequence[HeldOut] = (),
        sizes: Sequence[int] | None = None,
    ):
        """
        Args:
            program: The clients' program.
            shards: Every client's rows. They may be made only when they are used.
            names: The clients' names.
            held: Every client's held-out rows, if clients evaluate.
            sizes: How many rows each client has, if shards are made only when they are used.
        """
        self.program, self.shards, self.held = program, shards, list(held)
        self._anticipated: Mapping[int, Assignment] = NOBODY
        sizes = [int(shard.rows) for shard in shards] if sizes is None else sizes
        self.clients = [ClientInfo(k, names[k] if names else f"client-{k}", rows) for k, rows in enumerate(sizes)]

    @property
    def state_template(self) -> State:
        return self.program.first_state

    def ask(
        self, round_index: int, broadcast: Arrays, candidates: Sequence[int], sites: SiteTable
    ) -> dict[int, Arrays]:
        prepared, reports = None, {}
        for start in range(0, len(candidates), GROUP):
            shards = {k: self.shards[k] for k in candidates[start : start + GROUP]}
            if prepared is None:
                prepared = self.program.prepare(round_index, broadcast)
            for k, shard in shards.items():
                reports[k] = self.program.report(round_index, k, prepared, sites.get(k), shard)
        return reports

    def assign_early(self, assignments: Mapping[int, Assignment]) -> None:
        self._anticipated = assignments

    def trained_early(self, round_index: int, sites: SiteTable) -> dict[int, Trained]:
        assignments, self._anticipated = self._anticipated, NOBODY
        found = {k: self.train(round_index, k, *assignment, sites) for k, assignment in assignments.items()}
        return {k: trained for k, trained in found.items() if trained is not None}

    def announce(self, round_index: int, broadcast: Arrays, candidates: Sequence[int]) -> None:
        """Do nothing: in process no message would be saved, and reports are computed when they are asked for."""

    def train(
        self, round_index: int, client: int, assignment: Arrays, cached: Arrays, sites: SiteTable
    ) -> Trained | None:
        state, shard = sites.get(client), self.shards[client]
        return Trained(*self.program.train(round_index, client, assignment, cached, state, shard))

    def train_in_secure_sum(
        self, round_index: int, clients: Sequence[int], assignment: Arrays, sites: SiteTable, threshold: int
    ) -> tuple[Arrays, list[int], int] | None:
        """The noisy sums over clients of a private round, as a secure sum over nodes gives them (``secure_round``)."""
        shared, total = SharedNoise(f"round {round_index}", threshold), None
        for k in clients:
            found = self.program.release_share(round_index, k, assignment, self.shards[k], shared)
            total = found if total is None else {name: total[name] + array for name, array in found.items()}
        return (total or {}), list(clients), threshold

    def commit(self, round_index: int, clients: Sequence[int]) -> None:
        """Do nothing: clients in this process have no state of their own to commit."""

    def evaluate(self, round_index: int, particles: Any, clients: Sequence[int], sites: SiteTable) -> dict[int, Sums]:
        return {k: self.program.evaluate(particles, self.held[k]) for k in clients}

    def expand(self, round_index: int, request: Arrays, clients: Sequence[int], sites: SiteTable) -> dict[int, Arrays]:
        found = {k: self.program.expand(request, self.shards[k]) for k in clients}
        return {k: site for k, site in found.items() if not implausible_site(site)}

    def expand_at_nodes(
        self, round_index: int, request: Arrays, clients: Sequence[int], sites: SiteTable
    ) -> dict[int, Arrays]:
        found = {k: self.program.expand_at_nodes(request, self.shards[k]) for k in clients}
        return {k: answer for k, answer in found.items() if not implausible_nodes(answer)}

    def weigh(self, round_index: int, request: Arrays, clients: Sequence[int], sites: SiteTable) -> dict[int, Arrays]:
        return {k: self.program.weigh(request, self.shards[k]) for k in clients}

    def left_out(self, round_index: int) -> frozenset[int]:
        return frozenset()

    def faults(self, round_index: int) -> dict[str, Any]:
        return {}

    def memory(self) -> dict[str, Any]:
        return {}

    def recall(self, memory: Mapping[str, Any]) -> None:
        pass
