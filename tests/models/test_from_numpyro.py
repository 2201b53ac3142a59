"""NumPyro functions as models: priors with their transforms, likelihoods row by row, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
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
from fedstein.models.fisher import full_fisher

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)).astype(np.float32)
LABELS = (RNG.random(60) < 1 / (1 + np.exp(-X @ [1.0, -1.0]))).astype(np.int32)
COUNTS = RNG.poisson(np.exp(X @ [0.5, -0.3])).astype(np.float32)


def logistic(x: Any, y: Any = None) -> None:
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, tau).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


def counts(x: Any, y: Any = None, family: Callable[..., Any] = dist.Poisson) -> None:
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.deterministic("factor", jnp.exp(beta))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", family(jnp.exp(x @ beta)), obs=y)


@pytest.fixture(scope="module")
def built() -> models.Model:
    return models.from_numpyro(logistic, X, LABELS)


def test_a_logistic_regression_is_the_one_written_by_hand(built: models.Model, double: Any) -> None:
    def log_prior(theta: Any) -> Any:  # theta = [log tau, beta]
        tau, beta = jnp.exp(theta[0]), theta[1:]
        half_normal = 0.5 * math.log(2 / math.pi) - math.log(2.0) - 0.5 * (tau / 2.0) ** 2
        normal = -math.log(2 * math.pi) - 2 * theta[0] - 0.5 * jnp.sum(beta**2) / tau**2
        return half_normal + theta[0] + normal  # theta[0] is the log-Jacobian of exp

    def log_likelihood(theta: Any, x: Any, y: Any) -> Any:
        return jax.nn.log_sigmoid((2 * y - 1) * (x @ theta[1:]))

    theta = 0.5 * jax.random.normal(KEY, (4, 3))
    hand = models.custom(
        3,
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        init=lambda key: jax.random.normal(key, (3,)),
        predict=lambda t, x: jnp.stack([jax.nn.log_sigmoid(-x @ t[1:]), jax.nn.log_sigmoid(x @ t[1:])], axis=1),
        classes=2,
    )
    x, y, weights = jnp.asarray(X, float), jnp.asarray(LABELS), jnp.linspace(0.5, 1.5, len(X))
    blocks = (theta,)

    def numbers(model: models.Model) -> list[Any]:
        return [
            model.log_prior(blocks),
            model.prior_score(blocks)[0],
            model.log_likelihood(blocks, x, y, weights),
            model.likelihood_score(blocks, x, y, weights)[0],
            model.predict(blocks, x),
            full_fisher(model, blocks, x, weights, KEY, 0, y),
        ]

    for got, expected in zip(jax.jit(lambda: numbers(built))(), jax.jit(lambda: numbers(hand))(), strict=True):
        double.close(got, expected, factor=1e5)  # the example's own arrays are float32


def test_names_and_constrained_values(built: models.Model) -> None:
    assert built.parameter_names is not None
    assert built.constrain is not None
    assert built.parameter_names(("a", "b")) == ("log(tau)", "beta[0]", "beta[1]")
    theta = np.array([[0.5, 1.0, 2.0], [-0.5, 0.0, 1.0]], np.float32)
    found = built.constrain(theta)
    assert list(found) == ["tau", "beta"]
    np.testing.assert_allclose(found["tau"], np.exp(theta[:, 0]), rtol=1e-6)
    np.testing.assert_allclose(found["beta"], theta[:, 1:])
    with pytest.raises(InputError, match="constrain expects draws x 3 parameters"):
        built.constrain(theta[:, :2])


def test_the_curvature_of_counts_is_exact_and_in_their_support(double: Any) -> None:
    """X' diag(rate) X, which logpmf at other numbers than counts would not give."""
    model = models.from_numpyro(counts, X, COUNTS)
    assert (model.task, model.target, model.family) == ("regression", "count", "other")
    theta = np.array([[0.5, -0.8], [0.3, -0.6]])
    x, weights = jnp.asarray(X, float), jnp.linspace(0.5, 1.5, len(X))
    rates = np.exp(X.astype(float) @ theta.T) * np.asarray(weights)[:, None]
    expected = np.einsum("in,if,ig->fg", rates, X, X) / 2
    double.close(full_fisher(model, (jnp.asarray(theta),), x, weights, KEY, 0), expected, factor=1e5)
    assert model.diagonal_curvature is not None
    drawn = model.diagonal_curvature((jnp.asarray(theta),), x, weights, KEY, 200)[0].mean(axis=0)
    np.testing.assert_allclose(drawn, np.diag(expected), rtol=0.1)
    assert model.constrain is not None
    np.testing.assert_allclose(model.constrain(theta)["factor"], np.exp(theta))
    expected_log = COUNTS * (X @ theta[0]) - np.exp(X @ theta[0]) - [math.lgamma(c + 1) for c in COUNTS]
    assert model.log_density is not None
    np.testing.assert_allclose(
        model.log_density((jnp.asarray(theta[:1]),), x, jnp.asarray(COUNTS, float))[:, 0], expected_log, rtol=1e-5
    )


@pytest.mark.slow
def test_curvature_and_scores_of_other_families_pass_the_check() -> None:
    def robust(x: Any, y: Any = None) -> None:
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.StudentT(5.0, x @ beta, scale), obs=y)

    def grouped(x: Any, y: Any = None, groups: int = 3) -> None:
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(2)))
        with numpyro.plate("groups", groups):
            effect = numpyro.sample("effect", dist.Normal(0.0, scale))
        with numpyro.plate("rows", x.shape[0]):
            mean = effect[jnp.abs(x[:, 0]).astype(int)] + x @ share
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    def classes(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Categorical(logits=x @ w), obs=y)

    for function, y in ((robust, X[:, 0] + COUNTS), (grouped, COUNTS), (classes, np.arange(60) % 3)):
        models.check_model(models.from_numpyro(function, X, y), X, y)
    observed = models.from_numpyro(robust, X, COUNTS, curvature="observed", start="prior")
    assert observed.sample is None
    models.check_model(observed, X, COUNTS)


def rowwise(x: Any, y: Any = None) -> None:
    with numpyro.plate("rows", x.shape[0]):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def with_(body: Callable[[Any, Any, Any], Any]) -> Callable[..., None]:
    def function(x: Any, y: Any = None) -> None:
        body(x, y, numpyro.sample("b", dist.Normal(0.0, 1.0)))

    return function


def normal(mean: Any, y: Any) -> Any:
    return numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


REFUSED = {
    "has an entry for each row": rowwise,
    "is discrete": with_(lambda x, y, b: normal(b * x[:, 0] + numpyro.sample("k", dist.Bernoulli(0.5)), y)),
    "expected one observed variable": with_(lambda x, y, b: None),
    "numpyro.factor": with_(lambda x, y, b: (numpyro.factor("f", b), normal(b * x[:, 0], y))),
    "is a numpyro.param": with_(lambda x, y, b: normal(b * x[:, 0] + numpyro.param("p", 0.0), y)),
    "must have one log-probability for each row": with_(
        lambda x, y, b: numpyro.sample("y", dist.Normal(b * x[:, 0], 1.0).to_event(1), obs=y)
    ),
    "changes with the other rows": with_(lambda x, y, b: normal(b * (x[:, 0] - x[:, 0].mean()), y)),
    "the prior changes with the rows": with_(
        lambda x, y, b: normal(b * x[:, 0] + numpyro.sample("c", dist.Normal(x[:, 0].mean(), 1.0)), y)
    ),
    "no finite mean and variance": with_(lambda x, y, b: numpyro.sample("y", dist.Cauchy(b * x[:, 0], 1.0), obs=y)),
    "is scaled": with_(lambda x, y, b: numpyro.handlers.scale(normal, 2.0)(b * x[:, 0], y)),
    "failed for x of shape": with_(lambda x, y, b: normal(b * x[:, 7:9] @ jnp.ones(5), y)),
    "cannot be sampled": with_(
        lambda x, y, b: normal(numpyro.sample("c", dist.ImproperUniform(dist.constraints.real, (), ())) * x[:, 0], y)
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_clients_cannot_share_is_refused(sentence: str) -> None:
    with pytest.raises(InputError, match=sentence.replace("(", "\\(")):
        models.from_numpyro(REFUSED[sentence], X, COUNTS)


def test_arguments_are_checked() -> None:
    with pytest.raises(InputError, match="start must be one of median, prior"):
        models.from_numpyro(logistic, X, LABELS, start="zero")
    with pytest.raises(InputError, match="rows x features"):
        models.from_numpyro(logistic, X[:, 0], LABELS)
    with pytest.raises(InputError, match=r"y = 2 is not in the support .* \(labels 0 to 1\)"):
        models.from_numpyro(logistic, X, LABELS + 1)
    with pytest.raises(InputError, match="is not in the support of the observed variable 'y'"):
        models.from_numpyro(counts, X, X[:, 0])


@pytest.mark.slow
def test_the_posterior_is_that_of_numpyros_own_nuts(built: models.Model) -> None:
    """Three clients against all rows in one place; and PSIS-LOO afterwards."""
    arviz = pytest.importorskip("arviz")
    clients = [(X[i::3], LABELS[i::3]) for i in range(3)]
    posterior = fedstein.fit(built, clients, rounds=12, algorithm__particles=20, sites__expand="variational")
    draws = posterior.draws(2000)
    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(logistic), num_warmup=500, num_samples=2000, progress_bar=False, jit_model_args=True
    )
    mcmc.run(KEY, jnp.asarray(X), jnp.asarray(LABELS))
    reference = mcmc.get_samples()
    assert built.constrain is not None
    found = built.constrain(draws)
    assert posterior.names == ("log(tau)", "beta[0]", "beta[1]")
    for got, expected in ((found["beta"], reference["beta"]), (np.log(found["tau"]), np.log(reference["tau"]))):
        sd = np.std(expected, axis=0)
        assert np.all(np.abs(np.mean(got, axis=0) - np.mean(expected, axis=0)) < 0.25 * sd)
        np.testing.assert_allclose(np.std(got, axis=0), sd, rtol=0.2)
    assert built.log_density is not None
    with jax.enable_x64(True):
        rows = np.asarray(built.log_density((jnp.asarray(draws),), jnp.asarray(X), jnp.asarray(LABELS)))
    data = posterior.to_arviz(X, LABELS)
    np.testing.assert_allclose(data.posterior["beta"].mean(("chain", "draw")), found["beta"].mean(axis=0), atol=0.05)
    assert np.all(np.abs(data.log_likelihood["y"].mean(("chain", "draw")) - np.mean(rows, axis=1)) < 0.05)
    loo = arviz.loo(data, pointwise=True)
    elpd = loo.elpd if hasattr(loo, "elpd") else loo.elpd_loo  # ArviZ 1, ArviZ 0.x
    assert -60 * math.log(2) < float(elpd) < 0
    assert float(np.max(loo.pareto_k)) < 0.7
