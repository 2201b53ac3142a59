"""The sampler against answers that owe it nothing: a grid, a Gaussian limit, the definition of a score."""

from __future__ import annotations

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedstein
from fedstein.errors import InputError
from fedstein.stein import svgd_direction
from fedstein.stein.adagrad import AdaGrad
from fedstein.studies.reference import Diagnostics, Pooled, Sampler, distance, laplace, sample, score
from fedstein.studies.reference.nuts import diagnose

RATE = 0.5  # of the fixture's prior


def density(target: Pooled, theta: np.ndarray) -> float:
    """log p0 + loglik / alpha from the formulas of docs/models.md, in plain NumPy."""
    w, log_xi = theta[:-1], theta[-1]
    logits = target.x.astype(np.float64) @ w
    likelihood = np.sum(target.y * logits - np.logaddexp(0, logits))
    gaussian = 0.5 * len(w) * log_xi - 0.5 * np.exp(log_xi) * w @ w
    return gaussian + log_xi - RATE * np.exp(log_xi) + likelihood / target.temperature


def grid_moments(target: Pooled) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of two weights and log xi by summing over a grid."""
    gauss = laplace(target)
    axes = [np.linspace(m - 8 * s, m + 8 * s, 121) for m, s in zip(gauss.mode[:2], gauss.sd[:2], strict=True)]
    axes.append(np.linspace(-9, 5, 201))
    a, b = np.meshgrid(*axes[:2], indexing="ij")
    logits = a[..., None] * target.x[:, 0].astype(np.float64) + b[..., None]
    likelihood = np.sum(target.y * logits - np.logaddexp(0, logits), axis=-1) / target.temperature
    log_xi = axes[2]
    prior = 2 * log_xi - RATE * np.exp(log_xi) - 0.5 * np.exp(log_xi) * (a**2 + b**2)[..., None]
    weight = np.exp(likelihood[..., None] + prior - np.max(likelihood[..., None] + prior))
    weight /= weight.sum()
    marginals = [weight.sum(axis=tuple({0, 1, 2} - {axis})) for axis in range(3)]
    mean = np.array([m @ axis for m, axis in zip(marginals, axes, strict=True)])
    square = np.array([m @ axis**2 for m, axis in zip(marginals, axes, strict=True)])
    return mean, np.sqrt(square - mean**2)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_moments_are_those_of_a_grid(make_target, temperature) -> None:
    target = make_target(40, 1, temperature)
    shares: list[float] = []
    chains, checks = sample(target, Sampler(4, 300, 1500), shares.append)
    assert chains.shape == (4, 1500, 3)
    assert checks.trusted
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    mean, sd = grid_moments(target)
    error = 4 / np.sqrt(checks.min_ess)  # four standard errors, in posterior sds
    assert error < 0.15
    theta = chains.reshape(-1, 3)
    np.testing.assert_allclose((theta.mean(axis=0) - mean) / sd, 0, atol=error)
    np.testing.assert_allclose(theta.std(axis=0) / sd, 1, atol=error)


def test_the_same_seed_gives_the_same_draws_and_another_others(make_target) -> None:
    target = make_target(40, 1)
    first, again, other = (sample(target, Sampler(2, 300, 50, seed), lambda share: None)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == other)


def test_with_many_rows_the_weights_are_gaussian_around_the_mode(make_target) -> None:
    target = make_target(10_000, 2)
    gauss = laplace(target)
    chains, checks = sample(target, Sampler(2, 200, 500), lambda share: None)
    theta = chains.reshape(-1, 4)[:, :-1]
    error = 4 / np.sqrt(checks.min_ess)
    np.testing.assert_allclose((theta.mean(axis=0) - gauss.mode[:-1]) / gauss.sd[:-1], 0, atol=error)
    np.testing.assert_allclose(theta.std(axis=0) / gauss.sd[:-1], 1, atol=error)
    x, y = target.x.astype(np.float64), target.y
    p = 1 / (1 + np.exp(-x @ gauss.mode[:-1]))
    np.testing.assert_allclose(x.T @ (y - p), np.exp(gauss.mode[-1]) * gauss.mode[:-1], atol=1e-3)  # the prior's pull
    fisher = np.linalg.inv((x * (p * (1 - p))[:, None]).T @ x)
    np.testing.assert_allclose(gauss.sd[:-1], np.sqrt(np.diag(fisher)), rtol=2e-3)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_the_score_is_the_gradient_of_the_definition(make_target, temperature) -> None:
    target = make_target(30, 3, temperature)
    theta = np.random.default_rng(0).normal(size=(70, 5))  # more than a block
    got, step = score(target, theta), 1e-5
    for row in (0, 63, 64, 69):
        numeric = [
            (density(target, theta[row] + step * unit) - density(target, theta[row] - step * unit)) / (2 * step)
            for unit in np.eye(5)
        ]
        np.testing.assert_allclose(got[row], numeric, rtol=1e-6, atol=1e-6)


def test_the_mode_is_one_and_the_root_is_that_of_the_curvature(make_target) -> None:
    target = make_target(60, 3)
    gauss = laplace(target)
    np.testing.assert_allclose(score(target, gauss.mode[None])[0] * gauss.sd, 0, atol=1e-4)
    step = 1e-4
    hessian = np.array(
        [
            (score(target, (gauss.mode + step * unit)[None]) - score(target, (gauss.mode - step * unit)[None]))[0]
            for unit in np.eye(5)
        ]
    ) / (2 * step)
    np.testing.assert_allclose(gauss.root.T @ -hessian @ gauss.root, np.eye(5), atol=1e-5)


def test_chains_that_disagree_are_not_trusted() -> None:
    draw = np.random.default_rng(0)
    good, none = draw.normal(size=(4, 1000, 3)), np.zeros((4, 1000), bool)
    checks = diagnose(good, none, 7.0, 1.0)
    assert checks.trusted
    assert checks.max_rhat < 1.01
    assert checks.min_ess > 2000
    assert not diagnose(good + np.array([0, 0, 0, 1.0])[:, None, None], none, 7.0, 1.0).trusted
    assert diagnose(good * np.array([1, 1, 1, 2.0])[:, None, None], none, 7.0, 1.0).max_rhat > 1.01  # spreads differ
    assert not diagnose(good, none | (np.arange(1000) == 3), 7.0, 1.0).trusted
    assert not Diagnostics(0, 1.0, 399.0, 7.0, 1.0).trusted


@pytest.mark.parametrize(
    "silly",
    [Sampler(chains=1), Sampler(chains=100), Sampler(draws=0), Sampler(warmup=3), Sampler(seed=-1), Sampler(draws=-5)],
)
def test_silly_values_are_refused(silly) -> None:
    with pytest.raises(InputError, match="expected --"):
        silly.check()
    assert Sampler().check() == Sampler(4, 300, 1000, 0)


def test_the_spread_of_pooled_svgd_collapses_and_the_distance_shows_it(make_target) -> None:
    target = make_target(1500, 40)
    gauss = laplace(target)
    start = gauss.mode + np.random.default_rng(0).normal(size=(100, 42)) @ gauss.root.T  # at the right spread
    medians = {}
    for count in (20, 100):
        before = distance(target, start[:count], gauss.mode, gauss.sd)
        after = distance(target, pooled_svgd(target, start[:count]), gauss.mode, gauss.sd)
        assert 0.85 < before["sd_ratio"]["median"] < 1.1
        medians[count] = after["sd_ratio"]["median"]
    assert medians[20] < 0.6
    assert medians[20] < medians[100] < 0.8


def pooled_svgd(target: Pooled, start: np.ndarray, steps: int = 600) -> np.ndarray:
    with jax.enable_x64(True):
        x, y, ones = jnp.asarray(target.x, jnp.float64), jnp.asarray(target.y), jnp.ones(len(target.x))
        optimiser = AdaGrad(0.003, 1e-9)

        def step(number, carry):
            theta, history = carry
            blocks = target.model.split(theta)
            parts = zip(
                target.model.prior_score(blocks), target.model.likelihood_score(blocks, x, y, ones), strict=True
            )
            total = jnp.concatenate([a + b for a, b in parts], axis=1)
            return optimiser.step(number, theta, svgd_direction(theta, total), history)

        theta = jnp.asarray(start, jnp.float64)
        return np.asarray(jax.lax.fori_loop(0, steps, step, (theta, optimiser.init(theta)))[0])


USERS = (
    "inference/sampling.py",
    "models/numpyro_local.py",
    "models/numpyro_trace.py",
    "studies/reference/nuts.py",
    "studies/bench/peers.py",
    "studies/posterior_goals.py",
)


def test_numpyro_is_imported_only_where_it_is_needed_and_when_it_runs() -> None:
    root = Path(fedstein.__file__).parent
    for file in root.rglob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        for node in ast.walk(tree):
            names = (
                [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "") or ""]
            )
            if isinstance(node, (ast.Import, ast.ImportFrom)) and any(n.split(".")[0] == "numpyro" for n in names):
                assert file.relative_to(root).as_posix() in USERS
                assert node not in tree.body
