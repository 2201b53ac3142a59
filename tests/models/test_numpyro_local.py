"""Latent variables of a client's own: integrated out at the client, against closed forms and a fine grid."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import fedstein
from fedstein import models
from fedstein.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2)).astype(np.float32)
Y = (X @ [0.5, -0.4] + 0.8 + 0.5 * RNG.normal(size=12)).astype(np.float32)
LABELS = (Y > 0.5).astype(np.int32)


def intercepts(x: Any, y: Any = None) -> None:
    """One client of a hierarchy: u ~ N(0, tau^2) is its own."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    u = numpyro.sample("u", dist.Normal(0.0, tau))
    numpyro.deterministic("shifted", u + beta[0])
    numpyro.deterministic("doubled", 2 * tau)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ beta + u, sigma), obs=y)


def frailty(x: Any, y: Any = None) -> None:
    """A positive variable of the client's own that multiplies the odds."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    shape = numpyro.sample("shape", dist.Gamma(4.0, 1.0))
    u = numpyro.sample("u", dist.Gamma(shape, shape))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.log(u) + slope * x[:, 0]), obs=y)


@pytest.fixture(scope="module")
def gaussian() -> models.Model:
    return models.from_numpyro(intercepts, X, Y, local="u")


def test_a_gaussian_effect_has_the_closed_form(gaussian: models.Model, double: Any) -> None:
    """``random_intercept_linear`` has the integral in closed form: likelihood, score and the client's own effect."""
    theta = np.array(
        [[0.3, -0.2, 0.1, -0.5], [0.6, -0.5, -1.5, 0.2], [0.1, 0.2, 1.2, -1.0]]
    )  # beta, log tau, log sigma
    zeros = np.zeros((3, 1))
    by_hand = models.random_intercept_linear(2)
    same = np.concatenate([theta[:, :2], zeros, zeros, theta[:, 2:3], -2 * theta[:, 3:]], axis=1)
    x, y, weights = jnp.asarray(X, float), jnp.asarray(Y, float), jnp.linspace(0.5, 1.5, len(X))
    rows = jnp.asarray(by_hand.prepare(X), float)

    def numbers(model: models.Model, theta: Any, x: Any) -> tuple[Any, Any, Any]:
        blocks = model.split(jnp.asarray(theta))
        score = jnp.concatenate(model.likelihood_score(blocks, x, y, weights), axis=1)
        assert model.client_effect is not None
        return model.log_likelihood(blocks, x, y, weights), score, jnp.stack(model.client_effect(blocks, x, y, weights))

    found = jax.jit(lambda: numbers(gaussian, theta, x))()
    expected = jax.jit(lambda: numbers(by_hand, same, rows))()
    double.close(found[0], expected[0], factor=1e5)
    score = expected[1]
    double.close(found[1], jnp.stack([*score[:, :2].T, score[:, 4], -2 * score[:, 5]], axis=1), factor=1e5)
    double.close(found[2], expected[2], factor=1e5)
    predicted, by_formula = (
        gaussian.predict((jnp.asarray(theta),), x),
        by_hand.predict(by_hand.split(jnp.asarray(same)), rows),
    )
    double.close(predicted, by_formula, factor=1e5)
    assert gaussian.constrain is not None
    assert set(gaussian.constrain(theta)) == {"beta", "tau", "sigma", "doubled"}, "nothing that depends on u"


@pytest.mark.slow
def test_other_effects_are_integrals(double: Any) -> None:
    """Against a sum over a fine grid of log u, where neither prior nor likelihood is Gaussian."""
    model = models.from_numpyro(frailty, X, LABELS, local="u")
    assert (model.whole_shard, model.task, model.classes) == (True, "classification", 2)
    theta = np.array([[0.7, 0.2], [-0.4, 1.5]])  # slope, log(shape)
    x, weights = jnp.asarray(X, float), jnp.ones(len(X))
    found = jax.jit(lambda: model.log_likelihood((jnp.asarray(theta),), x, jnp.asarray(LABELS), weights))()
    z = np.linspace(-14, 8, 20001)
    for (slope, log_shape), got in zip(theta, found, strict=True):
        prior = np.asarray(dist.Gamma(np.exp(log_shape), np.exp(log_shape)).log_prob(np.exp(z))) + z
        logits = z + slope * X[:, :1].astype(float)
        rows = -np.logaddexp(0, -(2 * LABELS[:, None] - 1) * logits).sum(axis=0)
        assert got == pytest.approx(np.log(np.trapezoid(np.exp(prior + rows), z)), abs=2e-4)


@pytest.mark.slow
def test_a_fit_keeps_the_effects_at_the_clients(gaussian: models.Model) -> None:
    effects, clients = {"north": -0.6, "south": 0.1, "east": 0.7}, {}
    for name, effect in effects.items():
        x = RNG.normal(size=(30, 2)).astype(np.float32)
        clients[name] = (x, (x @ [0.5, -0.4] + effect + 0.3 * RNG.normal(size=30)).astype(np.float32))
    posterior = fedstein.fit(
        gaussian, clients, rounds=6, algorithm__particles=6, selection__kind="round_robin", sites__expand="mean"
    )
    assert posterior.names == ("beta[0]", "beta[1]", "log(tau)", "log(sigma)"), "the server knows no effect"
    for name, effect in effects.items():
        mean, sd = posterior.client_effect(*clients[name])
        assert abs(mean - effect) < 3 * sd + 0.1
        assert 0.02 < sd < 0.5
    with pytest.raises(InputError, match="needs the targets"):
        posterior.client_effect(clients["north"][0])


def test_what_is_no_variable_of_one_client_is_refused() -> None:
    def plated(x: Any, y: Any = None) -> None:
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        with numpyro.plate("clients", 3):
            u = numpyro.sample("u", dist.Normal(0.0, tau))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(u[0] * x[:, 0], 1.0), obs=y)

    def upside_down(x: Any, y: Any = None) -> None:
        u = numpyro.sample("u", dist.Normal(0.0, 1.0))
        beta = numpyro.sample("beta", dist.Normal(u, 1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(beta * x[:, 0], 1.0), obs=y)

    with pytest.raises(InputError, match=r"local='u' must be one number for each client.*make each of them a client"):
        models.from_numpyro(plated, X, Y, local="u")
    with pytest.raises(InputError, match=r"local='v' is not a latent variable of the model; expected one of tau, u"):
        models.from_numpyro(plated, X, Y, local="v")
    with pytest.raises(InputError, match=r"a shared variable has a prior that depends on local='u'"):
        models.from_numpyro(upside_down, X, Y, local="u")
