"""Evaluation of the particles: on the server's test rows, or on the held-out rows of every client.

Clients send counts and sums, including those of calibration bins. They send no predictions and no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedstein.data import Dataset
from fedstein.evaluation import metrics
from fedstein.evaluation.metrics import BUILT_IN, Metric, Metrics, Sums
from fedstein.evaluation.predictive import Predictive
from fedstein.federation.channel import size_of
from fedstein.federation.engine import ClientInfo, Engine
from fedstein.federation.site_table import SiteTable
from fedstein.models.base import Model


class EvaluationResult(NamedTuple):
    """The result of one evaluation."""

    sums: Sums  # the sums over all rows
    target_scale: float = 1.0
    clients: Mapping[int, Sums] = {}  # the sums of each client that answered; empty if the server evaluates
    asked: Sequence[int] = ()
    bytes_down: int = 0
    bytes_up: int = 0
    measured: Sequence[Metric] = BUILT_IN  # the metrics that are computed from the sums
    together: Sequence[int] | None = None  # the clients in the sums, if no client's own sums are known

    @property
    def metrics(self) -> Metrics:
        """The metrics over all rows together."""
        return metrics.metrics_of(self.sums, self.target_scale, self.measured)

    @property
    def reliability(self) -> list[dict[str, Any]] | None:
        """The reliability curve; regression has none."""
        return metrics.reliability_of(self.sums)

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """The clients' rows, the missing clients and the bytes of an evaluation; None if the server evaluates."""
        if not self.asked:
            return None
        known = self.clients if self.together is None else self.together
        missing = [client for client in self.asked if client not in known]
        cost = {"bytes_down": self.bytes_down, "bytes_up": self.bytes_up}
        return {"rows": int(self.sums["rows"]), "missing": missing, **cost}

    @property
    def record(self) -> dict[str, Any]:
        """The entries of a line of ``rounds.jsonl``: the metrics and, if clients evaluate, ``evaluation``."""
        return {**self.metrics, **({"evaluation": self.evaluation} if self.asked else {})}

    def by_client(self, infos: Sequence[ClientInfo]) -> list[dict[str, Any]]:
        """Id, name, held-out rows and metrics of each client that was asked; None if they are not known."""
        silent: dict[str, Any] = {"rows": None, **metrics.no_values(self.measured)}
        entries = []
        for info in infos:
            if info.id in self.asked:
                sums = self.clients.get(info.id)
                found = silent if sums is None else self._scores(sums)
                entries.append({"id": info.id, "name": info.name, **found})
        return entries

    def document(self, number: int, infos: Sequence[ClientInfo]) -> dict[str, Any]:
        """``clients-evaluation.json``: the metrics of all clients together and of each client."""
        return {"round": number, "together": self._scores(self.sums), "clients": self.by_client(infos)}

    def _scores(self, sums: Sums) -> dict[str, Any]:
        return {"rows": int(sums["rows"]), **metrics.metrics_of(sums, self.target_scale, self.measured)}


# The round, the points whose predictions are averaged, the site table -> the evaluation of the predictions.
Evaluate = Callable[[int, Any, SiteTable], EvaluationResult]


class Evaluation:
    """Evaluation by the server, on the dataset's test rows."""

    def __init__(self, model: Model, dataset: Dataset, metrics: Sequence[Metric] = BUILT_IN):
        self.dataset, self.metrics = dataset, metrics
        self.predictive = Predictive(model, dataset.test_x)

    def __call__(self, round_index: int, particles: Any, sites: SiteTable) -> EvaluationResult:
        sums = self.predictive.sums(particles, self.dataset.test_y, self.metrics)
        return EvaluationResult(sums, self.dataset.target_scale, measured=self.metrics)


class ClientEvaluation:
    """Evaluation by the clients, each on its own held-out rows. Barred clients are not asked."""

    def __init__(
        self,
        engine: Engine,
        task: str,
        target_scale: float = 1.0,
        barred: frozenset[int] = frozenset(),
        metrics: Sequence[Metric] = BUILT_IN,
    ):
        self.engine, self.task, self.target_scale, self.barred = engine, task, target_scale, barred
        self.metrics = metrics  # the metrics of the engine's program

    def __call__(self, round_index: int, particles: Any, sites: SiteTable) -> EvaluationResult:
        asked = [info.id for info in self.engine.clients if info.id not in self.barred]
        down = len(asked) * size_of({"particles": particles})
        together = getattr(self.engine, "evaluate_in_secure_sum", lambda *arguments: None)
        if (answer := together(round_index, particles, asked, sites)) is not None:
            sums, inside = answer
            up = 2 * size_of(sums) * len(inside)  # fixed point takes 16 bytes a number
            return EvaluationResult(sums, self.target_scale, {}, asked, down, up, self.metrics, inside)
        found = self.engine.evaluate(round_index, particles, asked, sites)
        replies = {client: found[client] for client in asked if client in found}  # the order of the sum is fixed
        return EvaluationResult(
            sums=metrics.add_sums(self.task, replies.values(), self.metrics),
            target_scale=self.target_scale,
            clients=replies,
            asked=asked,
            bytes_down=down,
            bytes_up=sum(size_of(sums) for sums in replies.values()),
            measured=self.metrics,
        )


def unmeasured(round_index: int, particles: Any, sites: SiteTable) -> EvaluationResult:
    """Return the evaluation of a round without rows to evaluate on: every metric is None."""
    return EvaluationResult(metrics.no_sums("classification"))
