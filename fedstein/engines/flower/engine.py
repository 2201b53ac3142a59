"""The engine over a network: the round loop's requests, through an ``Office``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedstein.algorithms.base import Arrays
from fedstein.client import ClientProgram
from fedstein.engines.attic import Attic
from fedstein.engines.base import ClientInfo, renew_states
from fedstein.engines.flower.letters import BadLetter, Shapes, digest, shapes_of, value
from fedstein.engines.flower.office import Office, Outcome
from fedstein.metrics import Sums, implausible_sums, sum_shapes
from fedstein.shard import Shard
from fedstein.sites.base import State


class FlowerEngine:
    """The round loop's engine over an ``Office``. ``states`` are the sites that the server has accepted."""

    remote = True

    def __init__(self, office: Office, program: ClientProgram, inputs: int):
        self.office, self.program = office, program
        self.attic = Attic((office.settings.budget or 0) << 20)
        self.states: dict[int, Mapping[str, jax.Array]] = {}
        self.changed: set[int] = set()
        self.bad: dict[int, int] = {}  # bad replies of each client since it was last left out
        self.until: dict[int, int] = {}  # the last round that a client is left out of
        self._receipts: dict[int, str] = {}
        self._updates: dict[int, State] = {}
        self._broadcast: tuple[Arrays, str] | None = None
        self._faults: dict[str, list[int]] = {}
        first = program.first_state
        self._like = {name: first[name] for name in program.algorithm.shared}
        office.sites = self.states
        office.restorable = set(first) <= set(self._like)
        self._report_shapes = report_shapes(program, inputs)
        self._update_shapes = update_shapes(program, inputs)
        self._sum_shapes = sum_shapes(program.model.task)

    @property
    def clients(self) -> Sequence[ClientInfo]:
        return self.office.roster.infos

    @property
    def like(self) -> State:
        return self._like

    def keep(self, state: State) -> Mapping[str, jax.Array]:
        return self.attic.keep(state)

    def ask(self, number: int, broadcast: Arrays, candidates: Sequence[int]) -> dict[int, Arrays]:
        self._broadcast = (broadcast, digest(broadcast))
        timeout = self.office.settings.report_timeout or 0.0
        found = self.office.request("ask", number, candidates, broadcast, self._report_shapes, timeout, need_one=True)
        self._count(number, found)
        return {client: _placed(found.replies[client].arrays) for client in candidates if client in found.replies}

    def train(self, number: int, client: int, assignment: Arrays, held: Arrays) -> Arrays | None:
        receipt = ""
        if held:
            known, receipt = self._broadcast or ({}, "")
            if known is not held:
                receipt = digest(held)
        found = self.office.request(
            "train",
            number,
            [client],
            assignment,
            self._update_shapes,
            self.office.settings.train_timeout or 0.0,
            held=held,
            held_receipt=receipt,
        )
        if client in found.replies:
            reply = found.replies[client]
            try:
                if value(reply.head, "receipt", str) != digest(reply.arrays):
                    raise BadLetter("its receipt is not that of what it sent")
            except BadLetter as error:
                found.rejected[client] = str(error)
                self.office.note("rejected", number, client, kind="train", reason=str(error))
            else:
                self._receipts[client] = reply.head["receipt"]
                update = _placed(reply.arrays)
                self._updates[client] = {name: update[name] for name in self._like}
                self._count(number, found)
                return update
        self._count(number, found)
        return None

    def commit(self, number: int, clients: Sequence[int], renewed: Mapping[int, Arrays]) -> None:
        renew_states(self, renewed)
        for client in clients:
            self.office.receipts[client] = (number, self._receipts[client])
            if self._like:
                self.states[client] = self.keep(self._updates[client])
                self.changed.add(client)
        self._receipts.clear()
        self._updates.clear()

    def evaluate(self, number: int, particles: jax.Array, clients: Sequence[int]) -> dict[int, Sums]:
        timeout = self.office.settings.report_timeout or 0.0
        asked = [client for client in clients if self.until.get(client, 0) < number]  # not those that are left out
        found = self.office.request(
            "evaluate", number, asked, {"particles": particles}, self._sum_shapes, timeout, check=implausible_sums
        )
        self._count(number, found._replace(missing={}))  # who is missing is with the evaluation itself
        return {client: found.replies[client].arrays for client in clients if client in found.replies}

    def _count(self, number: int, found: Outcome) -> None:
        for kind, clients in (("missing", found.missing), ("rejected", found.rejected)):
            known = self._faults.setdefault(kind, [])
            known.extend(client for client in clients if client not in known)
        for client in found.rejected:
            self.bad[client] = self.bad.get(client, 0) + 1
            if self.bad[client] >= (self.office.settings.offences or 1):
                self.bad[client] = 0
                self.until[client] = number + (self.office.settings.leave_out or 0)
                self.office.note("left out", number, client, until=self.until[client])

    def left_out(self, number: int) -> frozenset[int]:
        self._faults = {}
        found = frozenset(client for client, last in self.until.items() if number <= last)
        if found:
            self._faults["left_out"] = sorted(found)
        return found

    def faults(self, number: int) -> dict[str, Any]:
        return {kind: sorted(clients) for kind, clients in self._faults.items()}

    def memory(self) -> dict[str, Any]:
        return {
            "run": self.office.run,
            "receipts": {str(k): list(entry) for k, entry in self.office.receipts.items()},
            "bad": {str(k): count for k, count in self.bad.items()},
            "until": {str(k): last for k, last in self.until.items()},
            **self.office.roster.memory(),
        }

    def recall(self, memory: Mapping[str, Any]) -> None:
        self.office.receipts = {int(k): (int(n), str(r)) for k, (n, r) in memory.get("receipts", {}).items()}
        self.bad = {int(k): int(count) for k, count in memory.get("bad", {}).items()}
        self.until = {int(k): int(last) for k, last in memory.get("until", {}).items()}
        self.office.sites = self.states


def _placed(arrays: Arrays) -> Arrays:
    return {name: jnp.asarray(array) for name, array in arrays.items()}


def _example(program: ClientProgram, inputs: int) -> Shard:
    """A small shard such as the model gets, for its shapes."""
    labels = np.zeros(8, np.int32 if program.model.task == "classification" else np.float32)
    return program.shard(np.zeros((8, inputs), np.float32), labels)


def report_shapes(program: ClientProgram, inputs: int) -> Shapes:
    """What a report must look like: found by tracing it, not by running it."""
    scheme, algorithm = program.scheme, program.algorithm
    if scheme.report is None:
        return {}
    broadcast = scheme.broadcast(algorithm, program.first_server)
    key = jax.random.key(0)

    def report(received: Arrays, state: State, shard: Shard) -> Arrays:
        assert scheme.report is not None
        return scheme.report(algorithm, key, scheme.survey(algorithm, received), state, shard, 0)

    return shapes_of(jax.eval_shape(report, broadcast, program.first_state, _example(program, inputs)))


def update_shapes(program: ClientProgram, inputs: int) -> Shapes:
    """What an update must look like."""
    algorithm = program.algorithm
    assigned = algorithm.assign(program.first_server, None)
    key, scale = jax.random.key(0), program.schedule(1)

    def train(received: Arrays, state: State, shard: Shard) -> Arrays:
        return algorithm.train(key, received, state, shard, True, scale)[0]

    return shapes_of(jax.eval_shape(train, assigned, program.first_state, _example(program, inputs)))
