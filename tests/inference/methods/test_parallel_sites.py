"""Several clients a round with sites that add up: the mean of their moves, and the sum of their sites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def test_the_server_takes_the_mean_of_the_moves_and_the_sum_of_the_sites(miniature: Callable[..., Any]) -> None:
    settings = {"algorithm": {"kind": "parallel_dsvgd"}, "selection": {"per_round": 3}}
    made = miniature(
        model="blr", site="curvature", scheme="round_robin", algorithm="parallel_dsvgd", rounds=1, settings=settings
    )
    context = made.context
    server = context.program.first_server
    alone = {
        k: context.program.train(1, k, context.method.assign(server, None), {}, None, made.engine.shards[k])[0]
        for k in range(3)
    }
    state, records = made.play()
    assert records[0]["selected"] == [0, 1, 2]
    mean = np.mean([np.asarray(update["particles"], np.float64) for update in alone.values()], axis=0)
    np.testing.assert_allclose(state.server["particles"], mean, rtol=0, atol=1e-6)
    for name in ("eta", "precision"):
        total = sum(np.asarray(update[name], np.float64) for update in alone.values())
        np.testing.assert_allclose(state.server[name], total, rtol=1e-12, atol=1e-12 * np.abs(total).max())
    assert sorted(state.sites.accepted) == [0, 1, 2]
