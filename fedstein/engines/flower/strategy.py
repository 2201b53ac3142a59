"""Fedstein as a Flower ``Strategy``, for people who have a ServerApp of their own.

Flower's flow has two halves: ``configure_train`` returns messages, ``aggregate_train`` gets the replies. A round of
ours is one function, the same on every engine. So the round runs in a thread of its own: it asks for reports through
the grid, its request to train is handed out as the message of the round, and the reply is handed in. Whatever it must
ask again (a node that died, one that lost its site) goes through the grid directly.
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
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log

from fedstein.data import scaled
from fedstein.engines.flower.codec import array_record, to_record
from fedstein.engines.flower.events import Events
from fedstein.engines.flower.letters import Head, Letter
from fedstein.engines.flower.post import GridPost, Trouble, read_reply
from fedstein.engines.flower.server import wire_over
from fedstein.errors import InputError
from fedstein.metrics import METRICS
from fedstein.predictive import Predictive, mixture_moments
from fedstein.protocol import RunState, first, play_round
from fedstein.runs.config import merge, read_toml, resolve
from fedstein.runs.wiring import Wired, build_model, build_program, facts_of, load_dataset
from fedstein.sites.base import Arrays
from fedstein.start import start_jax

Played = tuple[RunState, dict[str, Any]]  # a round: the state after it and its record
HANDED = "handed out: "  # how the tickets of messages begin that Flower sends for us


class HandedOut(GridPost):
    """A post whose first request to train of a round is not sent but handed out; its reply is handed in."""

    def __init__(self, grid: Grid):
        super().__init__(grid)
        self.out: queue.Queue[Message] = queue.Queue()
        self.ticket = ""
        self.given: dict[str, Letter | Trouble] = {}
        self.free = False  # whether the message of this round is still to be handed out

    def send(self, letters: Sequence[tuple[int, Head]], arrays: Arrays, ttl: float) -> list[str]:
        if not self.free or letters[0][1]["kind"] != "train":
            return super().send(letters, arrays, ttl)
        self.free = False
        (node, head), self.ticket = letters[0], HANDED + uuid.uuid4().hex
        record = to_record(head, array_record(arrays))
        self.out.put(Message(record, dst_node_id=node, message_type=MessageType.TRAIN, ttl=ttl))
        return [self.ticket]

    def hand_in(self, replies: Sequence[Message]) -> None:
        """What came of the message; nothing came where it timed out."""
        self.given[self.ticket] = (
            read_reply(replies[0]) if replies else Trouble("no reply in the time that Flower was given", True)
        )

    def collect(self, tickets: Iterable[str]) -> dict[str, Letter | Trouble]:
        wanted = list(tickets)
        found = {ticket: self.given.pop(ticket) for ticket in wanted if ticket in self.given}
        others = [ticket for ticket in wanted if not ticket.startswith(HANDED)]
        return {**found, **(super().collect(others) if others else {})}


class FedStein(Strategy):
    """DSVGD with a client selected each round by KSD, HIP, round robin, at random, or any other scheme of Fedstein's.

    ``config`` is what ``fedstein run`` takes, a mapping or a TOML file; ``selection`` is short for ``selection.kind``.
    Clients run ``fedstein.flower.client_app``. The arrays that go round are the particles, N x d.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | Path | None = None,
        *,
        selection: str | None = None,
        settings: Sequence[str] = (),
    ):
        raw = read_toml(Path(config)) if isinstance(config, (str, Path)) else dict(config or {})
        raw = merge(raw, [*settings, *([f"selection.kind={selection}"] if selection else [])])
        raw = merge(raw, ["engine.kind=flower"])
        self.dataset = load_dataset(raw)
        self.config, self.notes = resolve(raw, facts_of(self.dataset))
        if self.config.selection.per_round > 1:
            raise InputError(
                f"selection.per_round = {self.config.selection.per_round}: a Flower strategy of Fedstein's trains one "
                "client a round; use fedstein deploy app for several"
            )
        start_jax(self.config)
        self.events = Events()
        self.wired: Wired | None = None
        self.state: RunState | None = None
        self.records: list[dict[str, Any]] = []  # one for each round, as in rounds.jsonl
        self._round: Future[Played] | None = None
        self._post: HandedOut | None = None

    def initial_arrays(self) -> ArrayRecord:
        """The particles before round 1, drawn from the seed."""
        model = build_model(self.config, self.dataset.train_x.shape[1], self.dataset.classes, self.dataset.task)
        return particle_record(build_program(self.config, model).first_server["particles"])

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask for reports where the scheme wants them, draw, and return the message to the client that trains."""
        if self.wired is None or self.state is None or self._post is None:
            self._post = HandedOut(grid)
            self.wired, _ = wire_over(self._post, self.config, self.dataset, self.events, uuid.uuid4().hex)
            self.state = first(self.wired.parts)
        self.state = with_particles(self.state, arrays)
        parts, state, post = self.wired.parts, self.state, self._post
        post.free = True
        self._round = in_a_thread(lambda: play_round(parts, state))
        while True:
            try:
                return [post.out.get(timeout=0.05)]
            except queue.Empty:
                if self._round.done():  # it came to nothing before anybody could train
                    self._round.result()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the reply and take it in.

        One that is missing is asked for again; after one that is wrong, logged by name, the next of the draw trains.
        """
        if self._round is None or self._post is None:
            raise InputError("aggregate_train takes the replies to what configure_train returned; call that first")
        self._post.hand_in(list(replies))
        self.state, record = self._round.result()
        self.records.append(record)
        return particle_record(self.state.server["particles"]), MetricRecord(
            {
                "client": record["selected"][0],
                "bytes-down": record["bytes_down"],
                "bytes-up": record["bytes_up"],
                **{name: float(record[name]) for name in METRICS if record[name] is not None},
            }
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing to send: a round evaluates where ``evaluate.where`` says, and its metrics are with its record."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The metrics of the round, on the server's test rows or over the clients' held-out rows."""
        found = self.records[-1] if self.records else {}
        return MetricRecord({name: float(found[name]) for name in METRICS if found.get(name) is not None}) or None

    def summary(self) -> None:
        """What will run, in Flower's log."""
        chosen = self.config
        log(INFO, "\t├──> Model: %s, particles: %s", chosen.model.kind, chosen.algorithm.particles)
        log(INFO, "\t└──> Sites: %s, selection: %s", chosen.sites.kind, chosen.selection.kind)
        for note in self.notes:
            log(INFO, "\t     %s", note)

    def posterior(self) -> np.ndarray:
        """The particles in the model's own coordinates, N x d."""
        if self.wired is None or self.state is None:
            raise InputError("there is no posterior before the first round; call start first")
        return self.wired.federation.particles(self.state)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Rows x classes probabilities for raw rows; for regression rows x 2, mean and sd in the target's own units."""
        if self.wired is None or self.state is None:
            raise InputError("there is no posterior before the first round; call start first")
        dataset = self.wired.dataset
        rows = scaled(x, dataset.mean, dataset.scale)
        out = Predictive(self.wired.federation.model, rows)(self.state.server["particles"])
        if dataset.task == "classification":
            return np.exp(out)
        mean, sd = mixture_moments(out)
        return np.stack([mean * dataset.target_scale + dataset.target_mean, sd * dataset.target_scale], axis=1)


def in_a_thread(play: Callable[[], Played]) -> Future[Played]:
    """What it returns or raises, later. The thread ends with the process, whoever is still waited for."""
    future: Future[Played] = Future()

    def run() -> None:
        try:
            future.set_result(play())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="fedstein-round", daemon=True).start()
    return future


def particle_record(particles: Any) -> ArrayRecord:
    """Particles as Flower's own users read arrays: NumPy's format."""
    return ArrayRecord({"particles": Array(np.asarray(particles))})


def with_particles(state: RunState, arrays: ArrayRecord) -> RunState:
    """The state with the particles that Flower hands over, which are our own unless somebody has changed them."""
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
