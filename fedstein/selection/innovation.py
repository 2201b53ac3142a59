"""Innovation: a client reports how much its own likelihood disagrees with its own site at the particles, one scalar.

    I_k = (1/N^2) sum_ij k_ij D_i . D_j,      D = score of p_k - score of t_k,

the squared RKHS norm of what the client would teach beyond what q has of it already. t_k starts at 1, so a client that
was never selected reports its whole likelihood; one whose site is exact reports zero. Needs sites that have a score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array

from fedstein.algorithms.base import Algorithm, Arrays
from fedstein.selection.base import Scheme
from fedstein.selection.draws import DRAWS, drawing
from fedstein.shard import Shard
from fedstein.sites.base import State
from fedstein.stein.discrepancy import kernel_of


def innovation(draw: str = "pass", max_probability: float = 1.0) -> Scheme:
    def broadcast(algorithm: Algorithm, server: Arrays) -> Arrays:
        return algorithm.broadcast(server)

    def survey(algorithm: Algorithm, received: Arrays) -> Any:
        blocks = algorithm.blocks(received)
        return blocks, kernel_of(blocks)

    def report(algorithm: Algorithm, key: Array, seen: Any, state: State, shard: Shard, rows: int) -> Arrays:
        assert algorithm.innovation is not None, "the config refuses sites without a score"
        return {"innovation": algorithm.innovation(key, seen, state, shard, rows)}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        return [float(report["innovation"]) for report in reports]

    rule = DRAWS[draw]
    return Scheme(
        "innovation", broadcast, survey, report, indicators, rule.first, drawing(rule, max_probability), rule.after
    )
