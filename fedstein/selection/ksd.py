"""KSD (Algorithm 1): a client reports S(q, p~_k), one scalar; drawn with P_k = S_k / sum_m S_m (eqn:definition1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array

from fedstein.algorithms.base import Algorithm, Arrays
from fedstein.selection.base import Scheme
from fedstein.selection.draws import DRAWS, drawing
from fedstein.shard import Shard
from fedstein.sites.base import State


def ksd(draw: str = "proportional", max_probability: float = 1.0) -> Scheme:
    def broadcast(algorithm: Algorithm, server: Arrays) -> Arrays:
        return algorithm.tilted_broadcast(server)

    def survey(algorithm: Algorithm, received: Arrays) -> Any:
        return algorithm.survey(received)

    def report(algorithm: Algorithm, key: Array, seen: Any, state: State, shard: Shard, rows: int) -> Arrays:
        return {"ksd": algorithm.tilted_ksd(key, seen, state, shard, rows)}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        return [float(report["ksd"]) for report in reports]

    rule = DRAWS[draw]
    return Scheme("ksd", broadcast, survey, report, indicators, rule.first, drawing(rule, max_probability), rule.after)
