"""The references: SVGD on everybody's rows, and federated averaging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from fedstein import stein
from fedstein.data.shard import whole
from fedstein.federation import protocol
from fedstein.inference.methods import Training
from fedstein.models.base import join
from fedstein.stein.adagrad import AdaGrad

RULE = AdaGrad(0.05, 1e-3)


def pooled(miniature: Callable[..., Any], problem: Any, rounds: int, local_steps: int, **changes: Any) -> Any:
    algorithm = {
        "particles": 12,
        "local_steps": local_steps,
        "step_size": RULE.step_size,
        "epsilon": RULE.epsilon,
        "batch_size": 100,
        "schedule": "constant",
        **changes,
    }
    return miniature(model=problem.model(), algorithm="pooled_svgd", rounds=rounds, settings={"algorithm": algorithm})


@pytest.fixture
def problem(linear_gaussian: Any) -> Any:
    return linear_gaussian._replace(prior_mean=np.array([1.0, -1.0, 0.5]))


def rows_of(federation: Any) -> tuple[np.ndarray, np.ndarray]:
    shards = federation.engine.shards
    x, y = (np.concatenate([np.asarray(getattr(s, kind))[: s.rows] for s in shards]) for kind in "xy")
    return x.astype(np.float64), y.astype(np.float64)


def test_pooled_svgd_holds_everybodys_rows_and_reaches_their_posterior(
    miniature: Callable[..., Any], problem: Any
) -> None:
    federation = pooled(miniature, problem, 20, 25, schedule="cosine")
    assert [(c.id, c.name, c.rows) for c in federation.engine.clients] == [(0, "everybody", 46)]
    state, records = federation.play()
    x, y = rows_of(federation)
    mean, covariance = problem.posterior(x, y)
    got = np.asarray(state.server["particles"])
    np.testing.assert_allclose(got.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(got.std(axis=0), np.sqrt(np.diag(covariance)), rtol=0.35)
    assert records[0]["row_gradients"] == {"train": 25 * 46 * 12, "site": 0, "report": 0}


def test_pooled_svgd_in_rounds_is_one_long_run_of_svgd(miniature: Callable[..., Any], problem: Any) -> None:
    """The optimiser's history lives from round to round: the same moves as a loop written out."""
    federation = pooled(miniature, problem, 3, 2)
    state, _ = federation.play()
    x, y = rows_of(federation)
    theta = np.asarray(federation.context.program.first_server["particles"])
    history = None
    for _ in range(6):
        score = -(theta - problem.prior_mean) / problem.prior_sd**2 + (y - theta @ x.T) @ x / problem.noise_sd**2
        phi = np.asarray(stein.svgd_direction(theta, score.astype(np.float32)))
        history = phi**2 if history is None else 0.9 * history + 0.1 * phi**2
        theta = (theta + RULE.step_size * phi / (RULE.epsilon + np.sqrt(history))).astype(np.float32)
    np.testing.assert_allclose(state.server["particles"], theta, rtol=1e-3, atol=1e-4)
    assert int(state.sites[0]["taken"]) == 6
    np.testing.assert_allclose(state.sites[0]["history"], history, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("particles", [1, 3])
def test_fedavg_with_everybody_and_one_whole_step_is_gradient_descent_on_all_rows(
    particles: int, miniature: Callable[..., Any]
) -> None:
    """Shards of very different size: the average is weighted by rows, the step is on the mean loss, no prior."""
    steps = {"local_steps": 1, "batch_size": 100, "step_size": 0.7, "schedule": "constant", "particles": particles}
    federation = miniature(
        model="blr", algorithm="fedavg", rounds=2, sizes=(2, 19, 5, 7), settings={"algorithm": steps}
    )
    model = federation.context.program.model
    theta = np.asarray(federation.context.program.first_server["particles"])
    state, records = federation.play()
    assert [sorted(record["selected"]) for record in records] == [[0, 1, 2, 3]] * 2
    for _ in range(2):
        gradient = sum(
            np.asarray(join(model.likelihood_score(model.split(theta), *whole(shard))))
            for shard in federation.engine.shards
        )
        theta = theta + 0.7 * gradient / 33
    np.testing.assert_allclose(state.server["particles"], theta, rtol=1e-4, atol=1e-5)


def test_fedavg_steps_in_batches_follow_the_schedule_and_carry_no_state(miniature: Callable[..., Any]) -> None:
    federation = miniature(model="blr", algorithm="fedavg", rounds=3)
    context = federation.context
    state = protocol.first(context)
    particles = state.server["particles"]
    assert particles.shape[0] == 1, "one network unless told otherwise"
    program, shard = context.program, federation.engine.shards[0]
    ends = [
        np.asarray(
            context.method.train(Training(jax.random.key(0), {"particles": particles}, {}, shard, False, scale))[0][
                "particles"
            ]
        )
        for scale in (0.0, 1e-3, 2e-3)
    ]
    np.testing.assert_array_equal(ends[0], particles)
    np.testing.assert_allclose(ends[2] - ends[0], 2 * (ends[1] - ends[0]), rtol=0.05, atol=1e-5)
    update, private = program.train(1, 0, {"particles": particles}, {}, None, shard)
    assert private == {}
    assert set(update) == {"particles", "rows"}
    assert int(update["rows"]) == 12
