"""How good the particles are: on the server's test rows, or on rows that every client holds out of its own.

Clients send counts and sums, calibration bins included; no prediction and no row leaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedstein import metrics
from fedstein.algorithms.base import Arrays
from fedstein.data import Dataset
from fedstein.engines.base import ClientInfo, Engine, size_of
from fedstein.metrics import Metrics, Sums
from fedstein.models.base import Model
from fedstein.predictive import Predictive, sums_of


class Reading(NamedTuple):
    """What one evaluation found."""

    sums: Sums  # over all rows
    target_scale: float = 1.0
    clients: Mapping[int, Sums] = {}  # of each client that answered; none where the server evaluates
    asked: Sequence[int] = ()
    bytes_down: int = 0
    bytes_up: int = 0

    @property
    def metrics(self) -> Metrics:
        """Over all rows together."""
        return metrics.metrics_of(self.sums, self.target_scale)

    @property
    def reliability(self) -> list[dict[str, Any]] | None:
        """The reliability curve; regression has none."""
        return metrics.reliability_of(self.sums)

    @property
    def record(self) -> dict[str, Any]:
        """Its part of a line of ``rounds.jsonl``: the metrics and, from clients, who is missing and what it cost."""
        if not self.asked:
            return dict(self.metrics)
        missing = [client for client in self.asked if client not in self.clients]
        cost = {"bytes_down": self.bytes_down, "bytes_up": self.bytes_up}
        return {**self.metrics, "evaluation": {"rows": int(self.sums["rows"]), "missing": missing, **cost}}

    def by_client(self, infos: Sequence[ClientInfo]) -> list[dict[str, Any]]:
        """Id, name, held-out rows and metrics of each client that was asked; None where it did not answer."""
        silent: dict[str, Any] = {"rows": None, **dict.fromkeys(metrics.METRICS)}
        entries = []
        for info in infos:
            if info.id in self.asked:
                sums = self.clients.get(info.id)
                found = silent if sums is None else self._scores(sums)
                entries.append({"id": info.id, "name": info.name, **found})
        return entries

    def document(self, number: int, infos: Sequence[ClientInfo]) -> dict[str, Any]:
        """``clients-evaluation.json``: everybody together, and each client by itself."""
        return {"round": number, "together": self._scores(self.sums), "clients": self.by_client(infos)}

    def _scores(self, sums: Sums) -> dict[str, Any]:
        return {"rows": int(sums["rows"]), **metrics.metrics_of(sums, self.target_scale)}


Evaluate = Callable[[int, Arrays], Reading]  # the round and the server's state -> how good its particles are


class Evaluation:
    """On the dataset's test rows, by the server."""

    def __init__(self, model: Model, dataset: Dataset):
        self.dataset = dataset
        self.predictive = Predictive(model, dataset.test_x)

    def __call__(self, number: int, server: Arrays) -> Reading:
        out = self.predictive(server["particles"])
        return Reading(sums_of(self.dataset.task, out, self.dataset.test_y), self.dataset.target_scale)


class ClientEvaluation:
    """By the clients, each on its own held-out rows; those that are barred are not asked."""

    def __init__(self, engine: Engine, task: str, target_scale: float = 1.0, barred: frozenset[int] = frozenset()):
        self.engine, self.task, self.target_scale, self.barred = engine, task, target_scale, barred

    def __call__(self, number: int, server: Arrays) -> Reading:
        particles = server["particles"]
        asked = [info.id for info in self.engine.clients if info.id not in self.barred]
        found = self.engine.evaluate(number, particles, asked)
        replies = {client: found[client] for client in asked if client in found}  # the order of the sum is fixed
        return Reading(
            sums=metrics.add_sums(self.task, replies.values()),
            target_scale=self.target_scale,
            clients=replies,
            asked=asked,
            bytes_down=len(asked) * size_of({"particles": particles}),
            bytes_up=sum(size_of(sums) for sums in replies.values()),
        )


def unmeasured(number: int, server: Arrays) -> Reading:
    """For rounds that have no rows to be evaluated on: every metric is None."""
    return Reading(metrics.no_sums("classification"))
