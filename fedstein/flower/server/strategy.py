"""Fedstein as a Flower ``Strategy``, for people who have a ServerApp of their own.

A Flower strategy has two halves: ``configure_train`` returns messages, and ``aggregate_train`` gets the replies. A
round of Fedstein is one function, the same on every engine. So the round runs in a thread of its own. It asks for
reports through the grid. ``configure_train`` returns the round's request to train, and ``aggregate_train`` passes the
reply on to the thread. If the round has to repeat a request (a node died, or lost its site), it does so through the
grid.
"""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from logging import INFO
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from fedstein.data import scaled
from fedstein.errors import InputError
from fedstein.evaluation.prediction import mixture_moments
from fedstein.evaluation.predictive import Predictive
from fedstein.federation.protocol import first, run_round
from fedstein.federation.records import RoundRecord
from fedstein.federation.round_context import RunState
from fedstein.flower.messages import Envelope, Head
from fedstein.flower.records import arrays_content, to_record
from fedstein.flower.server.events import Events
from fedstein.flower.server.run import prepare_over
from fedstein.flower.server.transport import DeliveryFailure, GridTransport, RetryingGrid, read_reply
from fedstein.inference.sites.base import Arrays
from fedstein.runs.build import build_model, build_program
from fedstein.runs.config import merge, read_toml, resolve
from fedstein.runs.federate import PreparedRun, facts_of, load_dataset
from fedstein.runs.jax_setup import start_jax

Played = tuple[RunState, RoundRecord]  # a round: the state after it and its record
HANDED = "handed out: "  # prefix of the tickets of messages that Flower's loop sends


class StrategyTransport(GridTransport):
    """A transport for a strategy: Flower's loop sends the first request to train of each round."""

    def __init__(self, grid: Grid, events: Events):
        super().__init__(grid, events)
        self.out: queue.Queue[Message] = queue.Queue()
        self.ticket = ""
        self.given: dict[str, Envelope | DeliveryFailure] = {}
        self.free = False  # whether Flower's loop can still send a message of this round

    def send(self, envelopes: Sequence[tuple[int, Head]], arrays: Arrays, ttl: float) -> list[str]:
        if not self.free or envelopes[0][1]["kind"] != "train":
            return super().send(envelopes, arrays, ttl)
        self.free = False
        (node, head), self.ticket = envelopes[0], HANDED + uuid.uuid4().hex
        record = to_record(head, arrays_content(arrays))
        self.out.put(Message(record, dst_node_id=node, message_type=MessageType.TRAIN, ttl=ttl))
        return [self.ticket]

    def take_replies(self, replies: Sequence[Message]) -> None:
        """Take the replies that Flower's loop got to its message; there are none if it timed out."""
        self.given[self.ticket] = (
            read_reply(replies[0]) if replies else DeliveryFailure("no reply in the time that Flower was given", True)
        )

    def collect(self, tickets: Iterable[str]) -> dict[str, Envelope | DeliveryFailure]:
        wanted = list(tickets)
        found = {ticket: self.given.pop(ticket) for ticket in wanted if ticket in self.given}
        others = [ticket for ticket in wanted if not ticket.startswith(HANDED)]
        return {**found, **(super().collect(others) if others else {})}


class FedStein(Strategy):
    """DSVGD with a client selected each round by KSD, HIP, round robin, at random, or any other scheme of Fedstein's.

    Clients run ``fedstein.flower.client_app``. The arrays that Flower passes from round to round are the
    particles, N x d.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | Path | None = None,
        *,
        selection: str | None = None,
        settings: Sequence[str] = (),
    ):
        """
        Args:
            config: The config, as for ``fedstein run``: a nested mapping, or the path of a TOML file.
            selection: Short for ``selection.kind``.
            settings: Further settings as text, ``"section.key=value"``.

        Raises:
            InputError: The settings are wrong, or need more than one client a round.
        """
        raw = read_toml(Path(config)) if isinstance(config, (str, Path)) else dict(config or {})
        arguments = [*settings, *([f"selection.kind={selection}"] if selection else []), "engine.kind=flower"]
        self.dataset = load_dataset(merge(raw, arguments))
        layers = [("the config", raw), ("the arguments", merge({}, arguments))]
        self.config, self.notes = resolve(layers, facts_of(self.dataset))
        if self.config.selection.per_round > 1:
            raise InputError(
                f"selection.per_round = {self.config.selection.per_round}: a Flower strategy of Fedstein's trains one "
                "client a round; use fedstein deploy app for several"
            )
        start_jax(self.config)
        self.events = Events()
        self.prepared: PreparedRun | None = None
        self.state: RunState | None = None
        self.records: list[dict[str, Any]] = []  # one for each round, as in rounds.jsonl
        self._round: Future[Played] | None = None
        self._post: StrategyTransport | None = None

    def initial_arrays(self) -> ArrayRecord:
        """The particles before round 1, drawn from the seed."""
        model = build_model(self.config, self.dataset.train_x.shape[1], self.dataset.classes, self.dataset.task)
        program = build_program(self.config, model)
        return particle_record(program.method.posterior(program.first_server))

    def start(self, grid: Grid, *args: Any, **kwargs: Any) -> Result:
        """Run Flower's loop over a grid that does not raise while the link is away; the request is then repeated."""
        return super().start(RetryingGrid(grid, self.events), *args, **kwargs)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask for reports if the scheme needs them, draw a client, and return the request to train for it.

        Args:
            server_round: The round, from 1.
            arrays: The particles.
            config: Not used.
            grid: Flower's grid, which reaches the nodes.

        Returns:
            One message.

        Raises:
            FedsteinError: Too few nodes connected, or no client could be asked to train.
        """
        if self.prepared is None or self.state is None or self._post is None:
            self._post = StrategyTransport(grid, self.events)
            self.prepared, _ = prepare_over(self._post, self.config, self.dataset, self.events, uuid.uuid4().hex)
            self.state = first(self.prepared.context)
        self.state = with_particles(self.state, arrays)
        context, state, transport = self.prepared.context, self.state, self._post
        transport.free = True
        self._round = in_a_thread(lambda: run_round(context, state))
        while True:
            try:
                return [transport.out.get(timeout=0.05)]
            except queue.Empty:
                if self._round.done():  # the round failed before a client was asked to train
                    self._round.result()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the reply and apply it.

        If there is no reply, the client is asked again. If the reply is wrong, the log names the client, and the next
        client of the draw trains.

        Args:
            server_round: The round, from 1.
            replies: The replies to the message of ``configure_train``.

        Returns:
            The particles after the round, and its metrics.

        Raises:
            InputError: ``configure_train`` was not called before.
            FedsteinError: The round failed.
        """
        if self._round is None or self._post is None or self.prepared is None:
            raise InputError("aggregate_train takes the replies to what configure_train returned; call that first")
        self._post.take_replies(list(replies))
        self.state, record = self._round.result()
        self.records.append(record.to_dict())
        return particle_record(self.prepared.posterior(self.state.server)), MetricRecord(
            {
                "client": record.selected[0],
                "bytes-down": record.bytes_down,
                "bytes-up": record.bytes_up,
                **{name: float(value) for name, value in record.metrics.items() if value is not None},
            }
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send nothing: the round itself evaluates, as ``evaluate.where`` says, and its record has the metrics."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The metrics of the round, on the server's test rows or over the clients' held-out rows."""
        found = RoundRecord.from_dict(self.records[-1]).metrics if self.records else {}
        return MetricRecord({name: float(value) for name, value in found.items() if value is not None}) or None

    def summary(self) -> None:
        """Write a description of the run to Flower's log."""
        chosen = self.config
        log(INFO, "\t├──> Model: %s, particles: %s", chosen.model.kind, chosen.algorithm.particles)
        log(INFO, "\t└──> Sites: %s, selection: %s", chosen.sites.kind, chosen.selection.kind)
        for note in self.notes:
            log(INFO, "\t     %s", note)

    def posterior(self) -> np.ndarray:
        """The particles in the model's own coordinates, N x d.

        Raises:
            InputError: No round has been run.
        """
        if self.prepared is None or self.state is None:
            raise InputError("there is no posterior before the first round; call start first")
        return self.prepared.federation.particles(self.state.server)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Predict raw rows.

        Args:
            x: Rows x features, on the original scale of the data.

        Returns:
            Rows x classes probabilities; in a regression rows x 2, mean and sd in the target's own units.

        Raises:
            InputError: No round has been run.
        """
        if self.prepared is None or self.state is None:
            raise InputError("there is no posterior before the first round; call start first")
        dataset = self.prepared.dataset
        rows = scaled(x, dataset.mean, dataset.scale)
        out = Predictive(self.prepared.federation.model, rows)(self.prepared.posterior(self.state.server))
        if dataset.task == "classification":
            return np.exp(out)
        mean, sd = mixture_moments(out)
        return np.stack([mean * dataset.target_scale + dataset.target_mean, sd * dataset.target_scale], axis=1)


def in_a_thread(function: Callable[[], Played]) -> Future[Played]:
    """Call a function in a thread of its own.

    Args:
        function: The function. The process can end while its thread runs.

    Returns:
        A future with the result or the exception of the function.
    """
    future: Future[Played] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="fedstein-round", daemon=True).start()
    return future


def particle_record(particles: Any) -> ArrayRecord:
    """Convert particles to Flower's arrays, in NumPy's format."""
    return ArrayRecord({"particles": Array(np.asarray(particles))})


def with_particles(state: RunState, arrays: ArrayRecord) -> RunState:
    """Take the particles that Flower passes from round to round; they differ if the user has changed them.

    Args:
        state: The state after the last round.
        arrays: The arrays that Flower passes.

    Returns:
        The state with these particles.

    Raises:
        InputError: The method keeps no particles, or these have the wrong shape or are not finite.
    """
    if "particles" not in state.server:
        raise InputError("a Flower strategy of Fedstein's needs a method that keeps particles; use fedstein deploy app")
    ours = np.asarray(state.server["particles"])
    given = arrays["particles"].numpy() if "particles" in arrays else None
    if given is None or given.shape != ours.shape or not np.isfinite(given).all():
        got = "none" if given is None else f"an array of shape {given.shape}"
        raise InputError(
            f"expected arrays with 'particles' of shape {ours.shape}, all finite, got {got}; begin with "
            "strategy.initial_arrays()"
        )
    if np.array_equal(given.astype(ours.dtype), ours):
        return state
    return state._replace(server={**state.server, "particles": jnp.asarray(given, ours.dtype)})
