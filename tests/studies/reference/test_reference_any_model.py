"""The reference for models of every kind: parametrisations, intervals and samples that agree or do not, from Python."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist

import fedstein
from fedstein.errors import InputError
from fedstein.models import MODELS, blr, custom
from fedstein.studies.reference import (
    Pooled,
    Sampler,
    central_interval,
    compare_with_nuts,
    coverage,
    energy_test,
    sample,
    verdict,
)
from fedstein.studies.reference.compare import pool
from fedstein.studies.reference.distance import log_xi_of, weights_of
from fedstein.studies.reference.target import log_density_at, to_theta

LINEAR = custom(
    3,
    log_prior=lambda theta: -0.5 * theta @ theta,
    log_likelihood=lambda theta, x, y: -0.5 * (y - x @ theta) ** 2,
    init=lambda key: jax.random.normal(key, (3,)),
    predict=lambda theta, x: jnp.stack([x @ theta, jnp.zeros(x.shape[0])], axis=1),
    task="regression",
)


def test_coverage_and_energy_are_their_definitions() -> None:
    draw = np.random.default_rng(0)
    x, y, sd = draw.normal(size=(30, 3)), draw.normal(size=(50, 3)), np.array([1.0, 2.0, 0.5])
    interval = central_interval(y, 0.8)
    np.testing.assert_allclose(interval, np.percentile(y, (10, 90), axis=0).T)
    assert list(coverage(interval, y)) == [0.8, 0.8, 0.8]
    got = energy_test(x, y, sd)
    a, b = x / sd, y / sd
    assert got["distance"] == pytest.approx(2 * cdist(a, b).mean() - cdist(a, a).mean() - cdist(b, b).mean())
    assert got["p_value"] > 0.02
    assert energy_test(x + sd, y, sd)["p_value"] == 1 / 500
    assert energy_test(0.3 * y[:40], y, np.ones(3))["p_value"] < 0.01  # right means, too narrow


@pytest.mark.parametrize("kind", [name for name, kind in MODELS.items() if "bnn" not in name])
def test_every_regression_has_weights_and_a_non_centred_form(kind: str) -> None:
    """log p(u, h) = log p(theta(u, h)) + log |d theta / d (u, h)|, by the Jacobian that JAX finds."""
    entry = MODELS[kind]
    model = entry.build(2, entry.classes or (3 if entry.task == "classification" else 0), entry.settings())
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(6, 2)), draw.integers(0, 2, 6)
    target = pool(model, [(x[:4], y[:4]), (x[4:], y[4:])], 2.0)
    assert model.widths[0] == weights_of(model).sum()
    assert log_xi_of(model) == model.widths[0]
    with jax.enable_x64(True):
        arrays, point = target.arrays(), jnp.asarray(0.3 * draw.normal(size=model.dim))
        theta, log_det = to_theta(model, False, point)
        jacobian = jax.jacobian(lambda at: to_theta(model, False, at)[0])(point)
        assert float(log_det) == pytest.approx(float(jnp.linalg.slogdet(jacobian)[1]))
        ours = log_density_at(model, False, point, *arrays)
        assert float(ours) == pytest.approx(float(log_density_at(model, True, theta, *arrays) + log_det))
        assert to_theta(model, True, point)[0] is point


@pytest.mark.slow
def test_both_parametrisations_sample_the_same_posterior() -> None:
    from fedstein.studies.reference.nuts import _sample

    draw = np.random.default_rng(2)
    x = draw.normal(size=(12, 2)).astype(np.float32)
    model = blr(2, prior_shape=1.0, prior_rate=0.5)
    target = Pooled(model, model.prepare(x), draw.integers(0, 2, 12), 1.0)
    found = [_sample(target, Sampler(2, 300, 1000), centred, lambda share: None) for centred in (True, False)]
    (a, first), (b, second) = found
    assert (first.centred, second.centred) == (True, False)
    error = 4 * np.sqrt(1 / first.min_ess + 1 / second.min_ess)
    assert error < 0.4
    sd = b.reshape(-1, 4).std(axis=0)
    np.testing.assert_allclose((a - b).reshape(-1, 4).mean(axis=0) / sd, 0, atol=error)


def test_chains_that_find_different_modes_are_not_trusted() -> None:
    """y = theta^2 + noise: theta and -theta are equally likely, and one chain finds only one of them."""
    model = custom(
        1,
        log_prior=lambda theta: -0.5 * theta @ theta / 9,
        log_likelihood=lambda theta, x, y: -0.5 * ((y - theta[0] ** 2) / 0.1) ** 2,
        init=lambda key: jax.random.normal(key, (1,)),
        predict=lambda theta, x: jnp.zeros((x.shape[0], 2)),
        task="regression",
    )
    target = Pooled(model, np.zeros((20, 1)), np.full(20, 4.0), 1.0)
    chains, checks = sample(target, Sampler(4, 100, 100), lambda share: None)
    np.testing.assert_allclose(np.abs(chains), 2.0, atol=0.05)
    assert not checks.trusted
    assert checks.max_rhat > 1.5
    scores = {"trusted": False, "nuts": checks._asdict()}
    assert verdict(scores).startswith("no verdict: NUTS itself is not to be trusted here (0 divergences, split R-hat")


def test_from_python_with_a_model_of_ones_own() -> None:
    draw, clients = np.random.default_rng(3), []
    for _ in range(3):
        x = draw.normal(size=(40, 3)).astype(np.float32)
        clients.append((x, (x @ [1.0, -0.5, 0.2] + draw.normal(size=40)).astype(np.float32)))
    posterior = fedstein.fit(
        LINEAR, clients, rounds=6, sites__structure="full", sites__settle=False, sites__expand="mean"
    )
    shares: list[float] = []
    got = compare_with_nuts(posterior, clients, Sampler(2, 200, 1000), shares.append)
    assert shares[-1] == 1.0
    assert got.trusted
    x, y = (np.concatenate(arrays).astype(np.float64) for arrays in zip(*clients, strict=True))
    covariance = np.linalg.inv(x.T @ x + np.eye(3))  # the posterior in closed form
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((got.reference.mean - covariance @ x.T @ y) / sd, 0, atol=0.1)
    np.testing.assert_allclose(got.reference.sd / sd, 1, atol=0.08)
    assert str(got) == "intervals agree with pooled NUTS: 3 of 3 weights within 10%"
    assert got.scores["quoted"]["energy"]["p_value"] > 0.01
    assert 0.86 < got.scores["gaussian"]["interval"]["coverage"]["min"] < 0.94
    assert got.scores["particles"]["within"] == 0  # 20 particles are no posterior
    large = LINEAR._replace(widths=(600,))
    with pytest.raises(InputError, match=f"at most 500 parameters, {LINEAR.name!r} has 600"):
        pool(large, clients, 1.0)


def test_the_verdict_says_what_the_intervals_are() -> None:
    quoted = {"trusted": True, "within": 53, "weights": 55}
    scores = {"trusted": True, "quoted": quoted}
    assert verdict(scores) == "intervals agree with pooled NUTS: 53 of 55 weights within 10%"
    assert "partly agree with" in verdict({**scores, "quoted": {**quoted, "within": 30}})
    assert "do not agree with" in verdict({**scores, "quoted": {**quoted, "within": 3}})
    assert verdict({**scores, "quoted": {**quoted, "trusted": False}}).endswith("(its draws are not to be trusted)")
    without = {"trusted": True, "quoted": None, "gaussian": None, "particles": quoted}
    assert verdict(without).endswith("(the particles: this run has no draws to quote from)")
