"""Private linear regression: the exact posterior without noise, an honest one with noise, and a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_private_runs import LINEAR, prepared, silent

import fedstein
from fedstein.inference.noisy_linear import LinearSums, linear_posterior
from fedstein.models import MODELS
from fedstein.models.base import Model
from fedstein.runs import runner

Z = 1.6448536269514722  # half the width of a 90% interval in standard deviations


@pytest.fixture(scope="module")
def model() -> Model:
    kind = MODELS["linear"]
    return kind.build(3, 0, kind.settings(kind="linear"))


def sums_of(x: np.ndarray, y: np.ndarray, sds: tuple[float, float, float], random: np.random.Generator) -> LinearSums:
    """The sums with noise of these standard deviations in gradient, squares and moments."""
    noise = np.tril(random.standard_normal((4, 4))) * sds[2] * np.where(np.eye(4), 1, 0.5**0.5)
    moments = x.T @ x + noise + np.tril(noise, -1).T
    gradient = x.T @ y + sds[0] * random.standard_normal(4)
    squares = float(y @ y + sds[1] * random.standard_normal())
    return LinearSums(gradient, squares, moments, *(sd**2 for sd in sds))


def rows(random: np.random.Generator, count: int = 3000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.concatenate([random.standard_normal((count, 3)), np.ones((count, 1))], axis=1)
    beta = 0.7 * random.standard_normal(4)
    return x, x @ beta + 0.8 * random.standard_normal(count), beta


def test_without_noise_it_is_least_squares_and_its_usual_spread(model: Model) -> None:
    random = np.random.default_rng(0)
    x, y, _ = rows(random)
    _, found = linear_posterior(model, sums_of(x, y, (0.0, 0.0, 0.0), random))
    beta = np.linalg.solve(x.T @ x, x.T @ y)
    variance = np.sum((y - x @ beta) ** 2) / (len(y) - 4)
    np.testing.assert_allclose(found.mean[:4], beta, atol=0.05 * found.sd[0])
    np.testing.assert_allclose(found.sd[:4], np.sqrt(variance * np.diag(np.linalg.inv(x.T @ x))), rtol=0.02)
    assert found.mean[-1] == pytest.approx(-np.log(variance), abs=0.2 * found.sd[-1])
    assert found.sd[-1] == pytest.approx(np.sqrt(2 / len(y)), rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("sds", [(90.0, 0.0, 0.0), (0.0, 150.0, 0.0), (0.0, 0.0, 120.0), (60.0, 100.0, 80.0)])
def test_intervals_hold_the_truth_as_often_as_they_say(model: Model, sds: tuple[float, float, float]) -> None:
    away = []
    for seed in range(40):
        random = np.random.default_rng([seed, 5])
        x, y, beta = rows(random)
        _, found = linear_posterior(model, sums_of(x, y, sds, random))
        truth = np.append(beta, np.log(0.8**-2))
        away.append((np.delete(found.mean, 4) - truth) / np.delete(found.sd, 4))
    held = np.abs(np.array(away)) < Z
    assert 0.82 < held[:, :4].mean() < 0.99  # a flat spectrum of moments is found better than stated
    assert held[:, 4].mean() > 0.78


@pytest.mark.slow
def test_a_run_on_diabetes(tmp_path: Path) -> None:
    privacy = {"epsilon": 20.0, "largest_target": 3.0, "visits": 1}
    runner.start(prepared(**LINEAR, privacy=privacy), tmp_path / "run", silent)
    posterior = fedstein.load(tmp_path / "run")
    assert not posterior.trusted
    assert posterior.names[-1] == "log gamma"
    assert np.isfinite(posterior.draws(5, using="gaussian")).all()
