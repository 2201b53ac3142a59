"""The site Gaussian and settling: against the posterior that can be written down."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedstein
from fedstein.errors import InputError
from fedstein.federation import protocol
from fedstein.federation.evaluation import unmeasured
from fedstein.inference.sites.gaussian import SiteGaussian, site_gaussian
from fedstein.inference.sites.settle import TOLERANCE, prior_precision, settle
from fedstein.models import blr
from fedstein.models.base import cut
from fedstein.runs.build import build_site, conclude, round_context
from fedstein.runs.federate import federate

SETTINGS = {
    "sites__kind": "curvature",
    "sites__structure": "full",
    "sites__expand": "mean",
    "selection__kind": "round_robin",
    "rounds": 12,
}
DIAGONAL = {"sites__kind": "curvature", "sites__structure": "diagonal"}
NOISE = 0.8


def linear_clients(count: int = 4) -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(3)
    clients = []
    for client in range(count):
        x = draw.normal(size=(20 + client, 2)) * [1.0, 0.3]
        clients.append((x, x @ [0.4, -1.7] + NOISE * draw.normal(size=len(x))))
    return clients


def pooled(clients):
    return tuple(np.concatenate(arrays) for arrays in zip(*clients, strict=True))


@pytest.fixture
def trained(double, linear_gaussian):
    """A federation of linear regressions in float64, and the rows behind it."""
    clients = linear_clients()
    return fedstein.fit(linear_gaussian.model(), clients, algorithm__particles=30, **SETTINGS), clients


def test_the_gaussian_is_the_analytic_posterior(trained, linear_gaussian):
    posterior, clients = trained
    mean, covariance = linear_gaussian.posterior(*pooled(clients))
    np.testing.assert_allclose(posterior.gaussian.mean, mean, atol=1e-8)
    np.testing.assert_allclose(posterior.gaussian.covariance, covariance, atol=1e-8)
    np.testing.assert_allclose(posterior.gaussian.sd, np.sqrt(np.diag(covariance)), atol=1e-8)


def test_settled_particles_have_the_analytic_mean(trained, linear_gaussian):
    posterior, clients = trained
    mean, covariance = linear_gaussian.posterior(*pooled(clients))
    off = (posterior.particles.mean(axis=0) - mean) / np.sqrt(np.diag(covariance))
    assert np.abs(off).max() < 2 * TOLERANCE


def test_predictions_have_the_analytic_width(trained, linear_gaussian):
    posterior, clients = trained
    mean, covariance = linear_gaussian.posterior(*pooled(clients))
    x = np.random.default_rng(0).normal(size=(50, 2))
    got = posterior.predict(x, using="gaussian", draws=4000)
    sd = np.sqrt(NOISE**2 + np.einsum("ij,jk,ik->i", x, covariance, x))
    np.testing.assert_allclose(got[:, 0], x @ mean, atol=0.02)
    np.testing.assert_allclose(got[:, 1], sd, rtol=0.01)
    y = x @ [0.4, -1.7]
    assert np.abs((y - got[:, 0]) / got[:, 1]).max() < 1, "without noise the truth is well inside"


def test_draws_are_reproducible_and_have_the_right_moments():
    precision = np.array([[4.0, 1.0], [1.0, 2.0]])
    gaussian = SiteGaussian(np.array([1.0, -2.0]), precision)
    draws = gaussian.draws(20_000, seed=5)
    assert np.array_equal(draws, gaussian.draws(20_000, seed=5))
    assert not np.array_equal(draws, gaussian.draws(20_000, seed=6))
    np.testing.assert_allclose(draws.mean(axis=0), gaussian.mean, atol=0.02)
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(precision), atol=0.02)
    with pytest.raises(InputError, match="at least one draw"):
        gaussian.draws(0)


def test_a_hierarchical_prior_gives_the_laplace_form():
    """Logistic regression: the gradient vanishes at the mean, and the precision is minus the Hessian there."""
    model = blr(3)
    draw = np.random.default_rng(1)
    root = draw.normal(size=(4, 30))
    summed = np.pad(root @ root.T, ((0, 1), (0, 1)))
    eta = summed @ [1.0, -0.5, 2.0, 0.3, 0.0]
    found = site_gaussian(model, {"eta": eta, "precision": summed}, np.zeros(5))

    def log_density(theta):
        return model.log_prior(cut(theta[None, :], model.widths))[0] + eta @ theta - 0.5 * theta @ summed @ theta

    with jax.enable_x64(True):
        at = jnp.asarray(found.mean)
        assert float(jnp.abs(jax.grad(log_density)(at)).max()) < 1e-6
        np.testing.assert_allclose(found.precision, -jax.hessian(log_density)(at), rtol=1e-9)
    assert not jax.config.jax_enable_x64


def test_a_gaussian_without_width_is_refused(double, linear_gaussian):
    flat = linear_gaussian.model()._replace(log_prior=lambda blocks: 0.0 * blocks[0][:, 0])
    with pytest.raises(InputError, match="not positive definite"):
        site_gaussian(flat, {"eta": np.zeros(2), "precision": np.diag([1.0, 0.0])}, np.zeros(2))
    with pytest.raises(InputError, match=r"not positive definite|no mode"):
        site_gaussian(flat, {"eta": np.ones(2), "precision": np.diag([1.0, 0.0])}, np.zeros(2))


def test_the_gaussian_needs_full_sites(linear_gaussian):
    clients = [(x.astype(np.float32), y.astype(np.float32)) for x, y in linear_clients(2)]
    for sites in ({"sites__kind": "particles"}, DIAGONAL):
        posterior = fedstein.fit(linear_gaussian.model(), clients, rounds=2, algorithm__particles=3, **sites)
        assert posterior.gaussian is None
        with pytest.raises(InputError, match="no Gaussian"):
            posterior.predict(clients[0][0], using="gaussian")
    with pytest.raises(InputError, match="no sums of full sites"):
        posterior.predict(clients[0][0], using="nuts")
    with pytest.raises(InputError, match="unknown posterior"):
        posterior.predict(clients[0][0], using="vi")


def test_forgetting_is_exact_for_a_gaussian_model(trained, linear_gaussian):
    """Without client 2's site there is the posterior of the others: sums, Gaussian and particles."""
    posterior, clients = trained
    federation = federate(posterior.config, posterior.model, clients)
    context = round_context(posterior.config, federation.program, federation.engine, unmeasured)
    for state, _ in protocol.run_rounds(context, protocol.first(context)):  # noqa: B007 - the last state is what counts
        pass
    others = {client: site for client, site in state.sites.accepted.items() if client != 2}
    sums = build_site(posterior.config, posterior.model).sums.total(others)
    x, y = pooled(rows for client, rows in enumerate(clients) if client != 2)
    np.testing.assert_allclose(sums["eta"], x.T @ y / NOISE**2, rtol=1e-10)
    np.testing.assert_allclose(sums["precision"], x.T @ x / NOISE**2, rtol=1e-10)
    found = conclude(context.method, {**state.server, **sums}, lambda steps, to_go: None)
    mean, covariance = linear_gaussian.posterior(x, y)
    np.testing.assert_allclose(found.gaussian.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.gaussian.covariance, covariance, atol=1e-8)
    assert found.settled.settled
    off = (np.asarray(found.server["particles"]).mean(axis=0) - mean) / np.sqrt(np.diag(covariance))
    assert np.abs(off).max() < 2 * TOLERANCE


def settled_on(model, structure, server, gaussian, config, **settings):
    sites = config.sites.model_copy(update={"structure": structure})
    return settle(model, build_site(config.model_copy(update={"sites": sites}), model), server, gaussian, **settings)


def test_settling_from_far_away_says_how_it_went(trained, linear_gaussian):
    posterior, clients = trained
    mean, covariance = linear_gaussian.posterior(*pooled(clients))
    precision = np.linalg.inv(covariance)
    x, y = pooled(clients)
    sums = {"eta": x.T @ y / NOISE**2, "precision": x.T @ x / NOISE**2}
    far = {"particles": posterior.particles + 100 * posterior.gaussian.sd, **sums}
    seen = []
    model, config = posterior.model, posterior.config
    gaussian = SiteGaussian(mean, precision)
    got = settled_on(model, "full", far, gaussian, config, on_block=lambda steps, to_go: seen.append((steps, to_go)))
    assert got.settled
    assert seen[0][0] == 0
    assert seen[0][1] == pytest.approx(100, rel=0.1)
    assert seen[-1] == (got.steps, got.to_go)
    assert np.abs((got.particles.mean(axis=0) - mean) / gaussian.sd).max() < 2 * TOLERANCE
    stopped = settled_on(model, "full", far, gaussian, config, steps=50)
    assert not stopped.settled
    assert stopped.steps == 50
    assert stopped.to_go > TOLERANCE


def test_diagonal_sites_settle_particle_by_particle(double, linear_gaussian):
    """One Gaussian for all particles: their mean goes to its mean."""
    model = linear_gaussian.model()
    clients = linear_clients(2)
    config = fedstein.fit(model, clients, rounds=1, algorithm__particles=20, **DIAGONAL).config
    draw = np.random.default_rng(0)
    precision = np.array([50.0, 3.0])
    server = {
        "particles": draw.normal(size=(20, 2)) + 4,
        "eta": np.tile(precision * [2.0, -1.0], (20, 1)),
        "precision": np.tile(precision, (20, 1)),
    }
    got = settled_on(model, "diagonal", server, None, config)
    prior = 1 / linear_gaussian.prior_sd**2
    expected = (precision * [2.0, -1.0] + prior * linear_gaussian.prior_mean) / (precision + prior)
    assert got.settled
    assert np.abs((got.particles.mean(axis=0) - expected) * np.sqrt(precision + prior)).max() < 3 * TOLERANCE


def test_the_priors_precision_is_the_diagonal_of_its_hessian(double):
    model = blr(2)
    particles = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)))
    centre = particles.mean(axis=0)
    hessian = jax.hessian(lambda theta: model.log_prior(cut(theta[None, :], model.widths))[0])(centre)
    np.testing.assert_allclose(prior_precision(model, particles), -jnp.diag(hessian), rtol=1e-10)
