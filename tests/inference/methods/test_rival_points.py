"""FedProx, SCAFFOLD, FedAdam and the ensemble on quadratic losses, whose optima can be written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from building import method_of, site_of

from fedstein.errors import InputError

SIZES = (6, 19, 12, 9)


class Quadratics:
    """Clients with mean losses theta' H_k theta / 2 - b_k' theta, and the federation that has them."""

    def __init__(self, miniature: Callable[..., Any], problem: Any, algorithm: str, rounds: int, **settings: Any):
        problem = problem._replace(prior_mean=np.array([1.0, -1.0, 0.5]))
        chosen = {"batch_size": 100, "schedule": "constant", "particles": 2, "step_size": 0.3, **settings}
        self.federation = miniature(
            model=problem.model(), algorithm=algorithm, rounds=rounds, sizes=SIZES, settings={"algorithm": chosen}
        )
        rows = [(np.asarray(s.x)[: s.rows], np.asarray(s.y)[: s.rows]) for s in self.federation.engine.shards]
        self.H = [x.T.astype(float) @ x / len(y) / problem.noise_sd**2 for x, y in rows]
        self.b = [x.T.astype(float) @ y / len(y) / problem.noise_sd**2 for x, y in rows]
        self.share = np.array(SIZES) / sum(SIZES)

    @property
    def optimum(self) -> np.ndarray:
        """Of the loss of all rows together."""
        return np.linalg.solve(self.mean(self.H), self.mean(self.b))

    def mean(self, parts: list[np.ndarray]) -> np.ndarray:
        return sum(w * part for w, part in zip(self.share, parts, strict=True))

    def result(self) -> np.ndarray:
        state, records = self.federation.play()
        assert [sorted(record["selected"]) for record in records] == [[0, 1, 2, 3]] * len(records)
        return np.asarray(state.server["particles"])


def test_scaffold_reaches_the_pooled_optimum_where_fedavg_does_not(
    miniature: Callable[..., Any], linear_gaussian: Any
) -> None:
    controlled = Quadratics(miniature, linear_gaussian, "scaffold", 60, local_steps=8)
    np.testing.assert_allclose(controlled.result(), [controlled.optimum] * 2, atol=2e-3)
    plain = Quadratics(miniature, linear_gaussian, "fedavg", 60, local_steps=8)
    assert np.abs(plain.result() - plain.optimum).max() > 0.02


def test_fedprox_reaches_its_own_fixed_point(miniature: Callable[..., Any], linear_gaussian: Any) -> None:
    """theta_k = (H_k + mu)^-1 (b_k + mu theta), theta = sum w_k theta_k, with the inner problem solved."""
    mu = 0.5
    case = Quadratics(miniature, linear_gaussian, "fedprox", 40, local_steps=60, mu=mu)
    inverses = [np.linalg.inv(H + mu * np.eye(3)) for H in case.H]
    pulled = case.mean([inverse @ b for inverse, b in zip(inverses, case.b, strict=True)])
    fixed = np.linalg.solve(np.eye(3) - mu * case.mean(inverses), pulled)
    np.testing.assert_allclose(case.result(), [fixed] * 2, atol=2e-3)
    assert np.abs(fixed - case.optimum).max() > 0.01
    one_step = Quadratics(miniature, linear_gaussian, "fedprox", 60, local_steps=1, mu=mu)
    np.testing.assert_allclose(one_step.result(), [one_step.optimum] * 2, atol=2e-3)


def test_fedadam_with_one_local_step_reaches_the_pooled_optimum(
    miniature: Callable[..., Any], linear_gaussian: Any
) -> None:
    case = Quadratics(miniature, linear_gaussian, "fedadam", 120, local_steps=1, server_step=0.1, schedule="cosine")
    np.testing.assert_allclose(case.result(), [case.optimum] * 2, atol=0.02)


def test_fedadam_takes_adams_steps(miniature: Callable[..., Any], linear_gaussian: Any) -> None:
    case = Quadratics(miniature, linear_gaussian, "fedadam", 3, local_steps=1)
    theta = np.asarray(case.federation.context.program.first_server["particles"], float)
    m, v = np.zeros_like(theta), np.full_like(theta, 1e-6)
    for _ in range(3):
        move = 0.3 * (case.mean(case.b) - theta @ case.mean(case.H))
        m, v = 0.9 * m + 0.1 * move, 0.99 * v + 0.01 * move**2
        theta = theta + 0.03 * m / (np.sqrt(v) + 1e-3)
    np.testing.assert_allclose(case.result(), theta, rtol=1e-4)


def test_an_ensemble_is_fedavg_for_each_member(miniature: Callable[..., Any], linear_gaussian: Any) -> None:
    """With whole shards there is no order of batches to differ in; with batches every member has its own."""
    many = Quadratics(miniature, linear_gaussian, "fedavg_ensemble", 3, local_steps=2)
    plain = Quadratics(miniature, linear_gaussian, "fedavg", 3, local_steps=2)
    np.testing.assert_allclose(many.result(), plain.result(), rtol=1e-5)
    start = np.asarray(many.federation.context.program.first_server["particles"])
    assert np.any(start[0] != start[1])


def test_scaffold_counts_clients_that_never_trained(miniature: Callable[..., Any], linear_gaussian: Any) -> None:
    made = miniature(
        model=linear_gaussian._replace(prior_mean=np.zeros(3)).model(),
        algorithm="scaffold",
        rounds=1,
        settings={"selection": {"per_round": 1}, "algorithm": {"particles": 1, "batch_size": 100}},
    )
    state, records = made.play()
    (client,) = records[0]["selected"]
    own = np.asarray(state.sites[client]["control"])
    np.testing.assert_allclose(state.server["control"], own / 4, rtol=1e-5)
    model = linear_gaussian.model()
    site = site_of("none", model, None)
    with pytest.raises(InputError, match=r"algorithm\.clients"):
        method_of("scaffold", model, site)
