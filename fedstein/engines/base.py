"""What an engine is: how the server reaches its clients. The round loop is the same on every one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fedstein.algorithms.base import Arrays


class ClientInfo(NamedTuple):
    """One line of ``clients.json``."""

    id: int
    name: str
    rows: int


class Engine(Protocol):
    """A reply that is missing or None is a client that did not answer.

    A client that has trained holds its new private state as *pending* until ``commit`` names it; what is not named
    is dropped. So a client's site never disagrees with what the server accepted.
    """

    @property
    def clients(self) -> Sequence[ClientInfo]: ...

    def ask(self, number: int, broadcast: Arrays, candidates: Sequence[int]) -> dict[int, Arrays]:
        """Steps 1 and 2: send the broadcast, collect the reports that arrive."""
        ...

    def train(self, number: int, client: int, assignment: Arrays, held: Arrays) -> Arrays | None:
        """Steps 4 to 6. ``assignment`` is what goes to the client now; ``held`` what it has received already."""
        ...

    def commit(self, number: int, clients: Sequence[int]) -> None:
        """The round is over; the updates of these clients were accepted."""
        ...
