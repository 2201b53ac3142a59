"""What an engine is: how the server reaches its clients. The round loop is the same on every one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jax import Array

from fedstein.algorithms.base import Arrays
from fedstein.client import ClientProgram
from fedstein.metrics import Sums
from fedstein.sites.base import State


class ClientInfo(NamedTuple):
    """One line of ``clients.json``."""

    id: int
    name: str
    rows: int


def size_of(arrays: Arrays) -> int:
    """The array bytes of a message."""
    return sum(int(array.nbytes) for array in arrays.values())


class Engine(Protocol):
    """A reply that is missing or None is a client that did not answer.

    A client that has trained holds its new private state as *pending* until ``commit`` names it; what is not named
    is dropped. So a client's site never disagrees with what the server accepted.
    """

    program: ClientProgram
    states: dict[int, Mapping[str, Array]]  # what a checkpoint keeps of each client that was ever selected
    changed: set[int]  # those of them that the last checkpoint has not seen
    remote: bool  # whether clients commit by what the last checkpoint says, so that every round needs one

    @property
    def clients(self) -> Sequence[ClientInfo]: ...

    @property
    def like(self) -> State:
        """A state as ``states`` has them, for its names, shapes and dtypes."""
        ...

    def keep(self, state: State) -> Mapping[str, Array]:
        """A state as ``states`` is to hold it: within the budget of memory."""
        ...

    def ask(self, number: int, broadcast: Arrays, candidates: Sequence[int]) -> dict[int, Arrays]:
        """Steps 1 and 2: send the broadcast, collect the reports that arrive."""
        ...

    def train(self, number: int, client: int, assignment: Arrays, held: Arrays) -> Arrays | None:
        """Steps 4 to 6. ``assignment`` is what goes to the client now; ``held`` what it has received already."""
        ...

    def commit(self, number: int, clients: Sequence[int], renewed: Mapping[int, Arrays]) -> None:
        """The round is over; the updates of these clients were accepted, and these arrays of others' states renewed."""
        ...

    def evaluate(self, number: int, particles: Array, clients: Sequence[int]) -> dict[int, Sums]:
        """Send the particles; collect what each client's held-out rows come to, as ``metrics.sum_shapes`` has it."""
        ...

    def left_out(self, number: int) -> frozenset[int]:
        """Clients that are not asked in this round because of what they did in earlier ones."""
        ...

    def faults(self, number: int) -> dict[str, Any]:
        """What went wrong in this round although it went on, by kind; empty where nothing did."""
        ...

    def memory(self) -> dict[str, Any]:
        """What the engine must know again after a resume, plain JSON."""
        ...

    def recall(self, memory: dict[str, Any]) -> None:
        """The counterpart of ``memory``."""
        ...


def renew_states(engine: Engine, renewed: Mapping[int, Arrays]) -> None:
    """Some arrays of clients' states replaced by what the server has worked out."""
    for client, arrays in renewed.items():
        fresh = {name: jnp.asarray(array) for name, array in arrays.items()}  # as all of a state is: no other program
        engine.states[client] = engine.keep({**engine.states[client], **fresh})
        engine.changed.add(client)
