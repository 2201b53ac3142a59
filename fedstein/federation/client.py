"""The computations of a client: report, training and evaluation. Each is one compiled call, the same on every engine.

The compiled functions take the seed, the round and the client as arguments, so runs that differ only in these share
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from fedstein.data.shard import Shard, make_shard
from fedstein.errors import InputError
from fedstein.evaluation.metrics import BUILT_IN, Metric, Sums, no_sums
from fedstein.evaluation.predictive import Predictive
from fedstein.federation.channel import ALL_CLIENTS, KINDS, Wire
from fedstein.federation.codecs import CODECS
from fedstein.inference.expansion import expand, expand_at_nodes, log_likelihoods
from fedstein.inference.methods.base import Method, Training
from fedstein.inference.natural import (
    GaussianSite,
    nodes_message,
    read_nodes_request,
    read_request,
    site_message,
)
from fedstein.inference.points import likelihoods_message, points_of, sums_for
from fedstein.inference.schedule import Schedule, constant
from fedstein.inference.sites.base import Arrays, Own, State
from fedstein.inference.target import SharedTarget, SharedTerms, Target
from fedstein.models.base import Model
from fedstein.privacy.guard import Guard, refuse
from fedstein.privacy.shared_noise import SharedNoise
from fedstein.seeds import REPORT, START, TRAIN, stream
from fedstein.selection.base import Scheme


class HeldOut(NamedTuple):
    """A client's held-out rows, ready to be predicted, and their labels or targets."""

    predictive: Predictive
    y: np.ndarray


class Prepared(NamedTuple):
    """Values that all clients of one process share in a round: terms of their targets, and values of the scheme."""

    terms: SharedTerms
    of_scheme: Any


class ClientProgram:
    """Model, method and scheme as a client runs them. The program has no data: state and shard are passed in.

    The program takes and returns encoded messages; it decodes and encodes them itself.
    """

    def __init__(
        self,
        model: Model,
        method: Method,
        scheme: Scheme,
        *,
        seed: int,
        batch_size: int,
        report_rows: int,
        schedule: Schedule | None = None,
        wire: Wire | None = None,
        metrics: Sequence[Metric] = BUILT_IN,
        guard: Guard | None = None,
    ):
        """
        Args:
            model: The model with the preparation of rows that this run needs.
            method: The method.
            scheme: The selection scheme.
            seed: The seed of the run.
            batch_size: The rows of a step. Clients with no more rows than this use all of them in every step.
            report_rows: The number of rows that a report uses; 0 uses all rows.
            schedule: The factor on the step size in each round.
            wire: The codec of the run's messages; None writes arrays as they are.
            metrics: The metrics of held-out rows.
            guard: The guard of a private run, which checks everything that leaves a client; None for other runs.
        """
        self.model, self.method, self.scheme = model, method, scheme
        self.seed, self.batch_size, self.report_rows = seed, batch_size, report_rows
        self.schedule = schedule or constant(0)
        self.wire = wire or Wire(dict.fromkeys(KINDS, CODECS["plain"]), seed, "float32")
        self.metrics = tuple(metrics)
        self.guard = guard

    @cached_property
    def first_server(self) -> Arrays:
        """The server's state before round 1. Every client can compute it from the seed."""
        return self.method.init(stream(self.seed, START))

    @cached_property
    def first_state(self) -> State:
        """The state of a client that has never trained: t_k = 1."""
        return self.method.client_state(self.first_server)

    def shard(self, x: np.ndarray, y: np.ndarray) -> Shard:
        """A client's rows in the form that the compiled functions take."""
        return make_shard(self.model.prepare(x), y)

    def held_out(self, x: np.ndarray, y: np.ndarray) -> HeldOut:
        """A client's held-out rows in the form that ``evaluate`` takes."""
        return HeldOut(Predictive(self.model, x, alike=True), y)

    def evaluate(self, particles: Array, held: HeldOut) -> Sums:
        """The sums over held-out rows from which the metrics are computed."""
        self._gate("evaluate")
        if not len(held.y):
            return no_sums(self.model.task, self.metrics)
        return held.predictive.sums(particles, held.y, self.metrics)

    def rows_reported(self, rows: int) -> int:
        """How many of a shard's rows a report differentiates."""
        return min(self.report_rows, rows) if self.report_rows else rows

    def prepare(self, round_index: int, broadcast: Arrays) -> Prepared:
        """The part of a report that depends on the broadcast alone; clients in one process share it."""
        received = self.wire.decode("broadcast", round_index, ALL_CLIENTS, broadcast)
        return _prepare(self.method, self.scheme, received)

    def report(self, round_index: int, client: int, prepared: Prepared, state: Own | None, shard: Shard) -> Arrays:
        """Step 2 of section III-A: the importance indicator, or what the server computes it from.

        Args:
            round_index: The round, from 1.
            client: The client's id.
            prepared: The result of ``prepare`` for this round's broadcast.
            state: The client's state; None if it has never trained.
            shard: The client's rows.

        Returns:
            The encoded report.
        """
        self._gate("ask")
        rows = self.report_rows if self.report_rows < shard.rows else 0
        self._refuse_cut(bool(rows), "selection.report_rows")
        own = dict(state) if state else self.first_state
        found = _report(self.method, self.scheme, rows, self._ids(round_index, client), prepared, own, shard)
        return self.wire.encode("report", round_index, client, found)

    def train(
        self, round_index: int, client: int, assignment: Arrays, cached: Arrays, state: Own | None, shard: Shard
    ) -> tuple[Arrays, State]:
        """Steps 5 and 6: minimise the local free energy and refit the site.

        Args:
            round_index: The round, from 1.
            client: The client's id.
            assignment: The encoded arrays that the server sent for training.
            cached: The encoded broadcast of this round, if part of it is used; otherwise empty.
            state: The client's state; None if it has never trained.
            shard: The client's rows.

        Returns:
            The encoded update, and the client's private state. The update contains the shared part of the state.
        """
        received = self._received(round_index, client, assignment, cached)
        if self.guard is not None:
            self._gate("train")
            return self._release(self.guard, round_index, client, received, state, shard), {}
        use_all = int(shard.rows) <= self.batch_size
        self._refuse_cut(not use_all, "algorithm.batch_size")
        own = dict(state) if state else self.first_state
        scale = self.schedule(round_index)
        update, private = _train(self.method, use_all, self._ids(round_index, client), received, own, shard, scale)
        return self.wire.encode("update", round_index, client, update, received), private

    def _release(
        self, guard: Guard, round_index: int, client: int, received: Arrays, state: Own | None, shard: Shard
    ) -> Arrays:
        """Return the update of a private run: noisy float64 sums, which the ledger has recorded before this returns."""
        protection = self.method.protection
        assert protection is not None, "the config refuses methods whose updates are not protected"
        own = dict(state) if state else self.first_state
        rows = int(shard.rows)
        x, y = np.asarray(shard.x, np.float64)[:rows], np.asarray(shard.y)[:rows]
        exact = protection.sums(received, own, x, y)
        noisy = guard.release(client, int(own["visits"]), exact, protection.sensitivities)
        return self.wire.encode("update", round_index, client, protection.finish(noisy, received, own), received)

    def release_share(
        self, round_index: int, client: int, assignment: Arrays, shard: Shard, shared: SharedNoise
    ) -> dict[str, np.ndarray]:
        """Compute a client's part of a private secure sum: its sums with its share of the noise. It is sent masked.

        Args:
            round_index: The round, from 1.
            client: The client's id.
            assignment: The encoded arrays that the server sent.
            shard: The client's rows.
            shared: The secure sum.

        Returns:
            The noisy sums. The client's ledger has recorded them.
        """
        assert self.guard is not None, "the config refuses shares of noise in runs without any"
        self._gate("secure")
        protection = self.method.protection
        assert protection is not None, "the config refuses methods whose updates are not protected"
        received = self._received(round_index, client, assignment, {})
        rows = int(shard.rows)
        x, y = np.asarray(shard.x, np.float64)[:rows], np.asarray(shard.y)[:rows]
        exact = protection.sums(received, {}, x, y)
        return self.guard.release(client, round_index - 1, exact, protection.sensitivities, shared)

    def _gate(self, kind: str) -> None:
        """Refuse a message that a private run must not send."""
        if self.guard is not None:
            refuse(kind, self.guard.settings)

    def _received(self, round_index: int, client: int, assignment: Arrays, cached: Arrays) -> Arrays:
        """Return the input of training: the assignment, with arrays of the broadcast that the assignment leaves out."""
        held = self.wire.decode("broadcast", round_index, ALL_CLIENTS, cached) if cached else {}
        return {**held, **self.wire.decode("assignment", round_index, client, assignment, held)}

    def expand(self, request: Arrays, shard: Shard) -> Arrays:
        """Expand the client's likelihood to second order on average over q.

        Args:
            request: q in the form of ``natural.expansion_request``.
            shard: The client's rows.

        Returns:
            The site in the form of ``natural.site_message``; NaN if the likelihood has no finite derivatives.
        """
        self._gate("expand")
        model, (mean, covariance) = self.method.spec.model, read_request(request)
        try:
            found = expand(model, shard, mean, covariance, temperature=self.method.spec.temperature, seed=self.seed)
        except InputError:
            found = GaussianSite(np.full(model.dim, np.nan), np.full((model.dim, model.dim), np.nan))
        return site_message(found, mean)

    def expand_at_nodes(self, request: Arrays, shard: Shard) -> Arrays:
        """Expand the client's likelihood over several q.

        Args:
            request: Several q in the form of ``natural.nodes_request``.
            shard: The client's rows.

        Returns:
            The sites and values in the form of ``natural.nodes_message``; NaN if they are not finite.
        """
        self._gate("nodes")
        spec, (means, covariances) = self.method.spec, read_nodes_request(request)
        try:
            found = expand_at_nodes(spec.model, shard, means, covariances, temperature=spec.temperature)
        except InputError:
            dim = spec.model.dim
            found = [(GaussianSite(np.full(dim, np.nan), np.full((dim, dim), np.nan)), np.nan)] * len(means)
        return nodes_message(found, means)

    def weigh(self, request: Arrays, shard: Shard) -> Arrays:
        """Compute the client's log-likelihood at points.

        Args:
            request: The points in the form of ``inference.points``.
            shard: The client's rows.

        Returns:
            One number for each point, up to a constant, in the form of ``points.likelihoods_message``. A point at which
            the likelihood is zero or overflows has minus infinity.
        """
        self._gate("weigh")
        spec = self.method.spec
        points = points_of(spec.model, request)
        found = log_likelihoods(spec.model, shard, points, temperature=spec.temperature)
        return likelihoods_message(sums_for(spec.model, request), found)

    def state_after(
        self, round_index: int, client: int, update: Arrays, private: State, assignment: Arrays, cached: Arrays
    ) -> State:
        """A client's whole state after training: its private part, and its shared part as the server decodes it."""
        reference = self._received(round_index, client, assignment, cached)
        received = self.wire.decode("update", round_index, client, update, reference)
        return {**private, **{name: received[name] for name in self.method.shared}}

    def _refuse_cut(self, cut: bool, key: str) -> None:
        """Refuse to train on part of a client's rows. If their number is known, the run is refused before it starts."""
        if cut and self.model.whole_shard:
            raise InputError(f"model {self.model.name!r} needs all rows of a client in every step; raise {key}")

    def _ids(self, round_index: int, client: int) -> np.ndarray:
        return np.array([self.seed, round_index, client], np.uint32)


@partial(jax.jit, static_argnums=(0, 1))
def _prepare(method: Method, scheme: Scheme, received: Arrays) -> Prepared:
    shared = SharedTarget(method.spec, received)
    return Prepared(shared.terms(scheme.uses), scheme.prepare(shared))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _report(
    method: Method, scheme: Scheme, rows: int, ids: Array, prepared: Prepared, state: State, shard: Shard
) -> Arrays:
    assert scheme.report is not None, f"{scheme.name} asks for no report"
    key = stream(ids[0], REPORT, ids[1], ids[2])
    return scheme.report(Target(method.spec, prepared.terms, key, state, shard, rows), prepared.of_scheme)


@partial(jax.jit, static_argnums=(0, 1))
def _train(
    method: Method, use_all: bool, ids: Array, received: Arrays, state: State, shard: Shard, scale: Array
) -> tuple[Arrays, State]:
    return method.train(Training(stream(ids[0], TRAIN, ids[1], ids[2]), received, state, shard, use_all, scale))


def compilations() -> int:
    """The number of programs that this process has compiled for reports and training; constant after a few rounds."""
    return sum(function._cache_size() for function in (_prepare, _report, _train))  # type: ignore[attr-defined]
