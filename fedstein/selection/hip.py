"""HIP (Algorithm 2): a client reports its likelihood score at the particles, N x d; P_k = <phi_k, phi'> / sum_m ....

phi' belongs to the mean score of the reports that arrived (Lemma 3). A HIP can be negative; it then counts as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array

from fedstein import stein
from fedstein.algorithms.base import Algorithm, Arrays
from fedstein.selection.base import Scheme
from fedstein.selection.draws import DRAWS, drawing
from fedstein.shard import Shard
from fedstein.sites.base import State


def hip(draw: str = "proportional", max_probability: float = 1.0) -> Scheme:
    def broadcast(algorithm: Algorithm, server: Arrays) -> Arrays:
        return algorithm.broadcast(server)

    def survey(algorithm: Algorithm, received: Arrays) -> Any:
        return algorithm.blocks(received)

    def report(algorithm: Algorithm, key: Array, seen: Any, state: State, shard: Shard, rows: int) -> Arrays:
        return {"score": algorithm.likelihood_score(key, seen, shard, rows)}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        return [float(v) for v in stein.mean_hips(broadcast["particles"], [report["score"] for report in reports])]

    rule = DRAWS[draw]
    draws = drawing(rule, max_probability)
    return Scheme("hip", broadcast, survey, report, indicators, rule.first, draws, rule.after, score="score")
