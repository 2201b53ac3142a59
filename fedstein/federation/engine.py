"""The contract of an engine: how the server reaches its clients. The round loop is the same on every engine.

An engine keeps no results. The ``SiteTable`` of the run's state has what the server has accepted from its clients, and
an engine gets it with every request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import Field

from fedstein.evaluation.metrics import Sums
from fedstein.federation.client import ClientProgram
from fedstein.federation.site_table import SiteTable
from fedstein.inference.sites.base import Arrays, State
from fedstein.settings import Count, NonNegativeFloat, Positive, PositiveFloat, Settings

BUDGET = 4096  # MiB


class ClientInfo(NamedTuple):
    """One line of ``clients.json``."""

    id: int
    name: str
    rows: int


class Trained(NamedTuple):
    """A client's answer to an assignment: the encoded update, and its private state.

    In process, the private state is part of the answer, because this process plays the client. On a network, it stays
    with the client, and the mapping is empty.
    """

    update: Arrays
    private: State


class Assignment(NamedTuple):
    """The encoded input of training: the arrays sent to the client, and those that it has from the broadcast."""

    arrays: Arrays
    cached: Arrays


NOBODY: Mapping[int, Assignment] = MappingProxyType({})


class Engine(Protocol):
    """The round loop's connection to clients. If a reply is missing or None, the client did not answer."""

    program: ClientProgram
    remote: bool  # whether clients commit what the last checkpoint says, so that every round needs a checkpoint

    @property
    def clients(self) -> Sequence[ClientInfo]:
        """Every client that takes part, by id."""
        ...

    @property
    def state_template(self) -> State:
        """The names, shapes and dtypes of the states that this engine's ``SiteTable`` holds."""
        ...

    def ask(
        self, round_index: int, broadcast: Arrays, candidates: Sequence[int], sites: SiteTable
    ) -> dict[int, Arrays]:
        """Send the encoded broadcast, and collect the encoded reports that arrive."""
        ...

    def assign_early(self, assignments: Mapping[int, Assignment]) -> None:
        """Let these candidates train before the draw: the next ``ask`` also sends them these assignments."""
        ...

    def trained_early(self, round_index: int, sites: SiteTable) -> dict[int, Trained]:
        """Return the answers of the clients that trained in the last ``ask``. They are returned only once.

        Args:
            round_index: The round.
            sites: The site table: what the server has accepted so far.

        Returns:
            The answers by client; a client that did not answer is missing.
        """
        ...

    def announce(self, round_index: int, broadcast: Arrays, candidates: Sequence[int]) -> None:
        """Announce the arguments of the next round's ``ask``. It is called right before ``evaluate`` ends this round.

        An engine may collect these reports with the evaluation. It must not treat the last update as finally accepted,
        because the checkpoint of this round is not written yet.

        Args:
            round_index: The next round.
            broadcast: The encoded broadcast that will be sent.
            candidates: The clients that will be asked.
        """
        ...

    def train(
        self, round_index: int, client: int, assignment: Arrays, cached: Arrays, sites: SiteTable
    ) -> Trained | None:
        """Let a client train.

        Args:
            round_index: The round, from 1.
            client: The client's id.
            assignment: The encoded arrays that the client gets now.
            cached: The encoded arrays that the client has already received in this round; empty if there are none.
            sites: The site table: what the server has accepted so far.

        Returns:
            The client's answer, or None if it did not answer.
        """
        ...

    def commit(self, round_index: int, clients: Sequence[int]) -> None:
        """End the round: the updates of these clients were accepted; pending updates of others are dropped."""
        ...

    def evaluate(self, round_index: int, particles: Any, clients: Sequence[int], sites: SiteTable) -> dict[int, Sums]:
        """Send the particles, and collect each client's sums over its held-out rows."""
        ...

    def expand(self, round_index: int, request: Arrays, clients: Sequence[int], sites: SiteTable) -> dict[int, Arrays]:
        """Send q = N(mean, covariance) and collect each client's expansion of its likelihood on average over q.

        Args:
            round_index: The last round.
            request: q in the form of ``natural.expansion_request``.
            clients: The clients to ask.
            sites: The site table: what the server has accepted so far.

        Returns:
            The sites of the clients that answered, in the form of ``natural.site_message``. These messages are not
            encoded.
        """
        ...

    def expand_at_nodes(
        self, round_index: int, request: Arrays, clients: Sequence[int], sites: SiteTable
    ) -> dict[int, Arrays]:
        """Send several q (``natural.nodes_request``); collect each client's expansions (``natural.nodes_message``)."""
        ...

    def weigh(self, round_index: int, request: Arrays, clients: Sequence[int], sites: SiteTable) -> dict[int, Arrays]:
        """Send points (``inference.points``), and collect each client's log-likelihood at each of them."""
        ...

    def left_out(self, round_index: int) -> frozenset[int]:
        """Return the clients that are not asked in this round, because of wrong replies in earlier rounds."""
        ...

    def faults(self, round_index: int) -> dict[str, Any]:
        """Return the faults of this round by kind, such as missing or rejected clients; empty if there were none."""
        ...

    def memory(self) -> dict[str, Any]:
        """Return the state that the engine needs after a resume, as plain JSON."""
        ...

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restore the state that ``memory`` returned before a resume."""
        ...


class EngineSettings(Settings):
    """The keys of ``[engine]`` that every engine has."""

    kind: str = "local"
    threads: int = Field(
        0,
        ge=0,
        le=256,
        description="Threads of the computation; 0 takes all cores. The same bits need the same number of threads.",
    )
    precision: Literal["float32", "float64"] = Field("float32", description="Floating point precision of the run.")
    device: Literal["auto", "cpu", "gpu", "tpu"] = Field(
        "auto",
        description="Where JAX computes: what it finds best, or this device and no other. Only the CPU is tested.",
    )
    budget: Count = Field(
        BUDGET,
        description="MiB of memory for clients' rows, and as many for their sites. Rows beyond this limit are read "
        "from the dataset again, and sites are kept on disk. 0 sets no limit. Results do not depend on it.",
    )


class LocalEngineSettings(EngineSettings):
    """Settings of the engine that plays every client in one process."""


class FlowerEngineSettings(EngineSettings):
    """Settings of the engine that reaches clients over Flower."""

    kind: str = "flower"
    on_missing: Literal["wait", "proceed"] = Field(
        "wait",
        description="Whether clients that do not answer are asked again with the same keys until they do, so that the "
        "result is that of a run without faults, or the round goes on without them.",
    )
    report_timeout: PositiveFloat = Field(
        300.0, description="Seconds for reports; then the clients that have not sent one are asked again or left out."
    )
    train_timeout: PositiveFloat = Field(
        900.0, description="Seconds for a training; then the same client is asked again, or the next one of the draw."
    )
    start_timeout: PositiveFloat = Field(300.0, description="Seconds to wait for all nodes before round 1.")
    patience: NonNegativeFloat = Field(
        1800.0, description="Seconds without any reply after which the run stops, to be resumed; 0 waits for ever."
    )
    offences: Positive = Field(3, description="Wrong replies after which a client is left out for some rounds.")
    leave_out: Count = Field(10, description="Rounds for which such a client is left out.")


class EngineKind(NamedTuple):
    """An engine that a config can name."""

    name: str
    about: str
    settings: type[EngineSettings]


ENGINES: dict[str, EngineKind] = {
    "local": EngineKind("local", "every client in this process", LocalEngineSettings),
    "flower": EngineKind("flower", "clients on Flower nodes, which keep their own rows", FlowerEngineSettings),
}
