"""Models of one's own: curvature in the support of the likelihood, and the check on arrival."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fedstein import models
from fedstein.errors import InputError
from fedstein.models.base import join
from fedstein.models.checks import check_model
from fedstein.models.fisher import by_autodiff, diagonal_fisher, full_fisher

KEY = jax.random.key(0)


def rows(n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(n, 2)).astype(np.float32)
    return x, draw.poisson(np.exp(x @ [0.5, -0.8])).astype(np.float32)


def own(**changes: Any) -> models.Model:
    """Poisson regression as a user writes it."""
    given: dict[str, Any] = {
        "log_prior": lambda theta: -0.5 * theta @ theta,
        "log_likelihood": lambda theta, x, y: jax.scipy.stats.poisson.logpmf(y, jnp.exp(x @ theta)),
        "init": lambda key: 0.3 * jax.random.normal(key, (2,)),
        "predict": lambda theta, x: jnp.stack([jnp.exp(x @ theta), -(x @ theta)], axis=1),
        "task": "regression",
        "target": "count",
    }
    return models.custom(2, **{**given, **changes})


def sample(key: Array, theta: Array, x: Array) -> Array:
    return jax.random.poisson(key, jnp.exp(x @ theta)).astype(x.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [False, True])
def test_a_poisson_model_of_ones_own_has_the_curvature_of_the_built_in_one(drawn: bool) -> None:
    """Gauss-Hermite nodes of a Gaussian are no counts: there the log-probability is -inf and has no gradient."""
    model = own(sample=sample if drawn else None)
    x, y = rows()
    theta = np.array([[0.5, -0.8], [0.3, -0.6]], np.float32)
    weights = np.linspace(0.5, 1.5, len(x)).astype(np.float32)
    rates = np.exp(x.astype(float) @ theta.T) * weights[:, None]
    expected = np.einsum("in,if,ig->nfg", rates, x, x)
    blocks = model.split(jnp.asarray(theta))
    full = jax.jit(lambda b: full_fisher(model, b, x, weights, KEY, 0, y))(blocks)
    diagonal = join(jax.jit(lambda b: diagonal_fisher(model, b, x, weights, KEY, 0, y))(blocks))
    tolerance = 0.15 if drawn else 1e-5
    np.testing.assert_allclose(full, expected.mean(axis=0), atol=tolerance * expected.max())
    np.testing.assert_allclose(diagonal, np.einsum("nii->ni", expected), atol=tolerance * expected.max())
    nodes = model._replace(likelihood="gaussian")  # what was done before, and is refused now
    assert not np.all(np.asarray(by_autodiff(nodes, blocks, x, weights, KEY, 0, diagonal=True)) > 1)


def test_a_hessian_that_is_indefinite_is_clipped(double: Any) -> None:
    """Student t errors: rows far out have negative curvature."""
    model = models.custom(
        2,
        log_prior=lambda theta: -0.5 * theta @ theta,
        log_likelihood=lambda theta, x, y: -2 * jnp.log1p((y - x @ theta) ** 2),
        init=lambda key: jax.random.normal(key, (2,)),
        predict=lambda theta, x: jnp.stack([x @ theta, jnp.zeros(len(x))], axis=1),
        task="regression",
    )
    x = np.array([[1.0, 0.0], [0.0, 1.0]])
    y, ones = np.array([0.1, 9.0]), np.ones(2)
    blocks = (jnp.zeros((1, 2)),)
    full = np.asarray(full_fisher(model, blocks, x, ones, KEY, 0, y))
    inner = 4 * (1 - 0.1**2) / (1 + 0.1**2) ** 2
    np.testing.assert_allclose(full, np.diag([inner, 0.0]), atol=1e-12)
    np.testing.assert_allclose(diagonal_fisher(model, blocks, x, ones, KEY, 0, y)[0][0], [inner, 0.0], atol=1e-12)
    check_model(model, x, y)
    with pytest.raises(InputError, match="needs y"):
        full_fisher(model, blocks, x, ones, KEY, 0)


@pytest.mark.slow
def test_good_models_pass() -> None:
    x, y = rows(40)
    check_model(own(), x, y)
    check_model(own(sample=sample), x, y)
    labels = (y > 0).astype(np.int32)
    check_model(models.blr(2, start="wide"), x, labels)
    check_model(models.bnn_classifier(2, 3, hidden=(5,)), x, labels)
    check_model(models.linear_regression(2), x, y)
    check_model(models.softmax_regression(2, 3), x, labels)
    check_model(models.random_intercept_linear(2), x, y)


@pytest.mark.slow
@pytest.mark.parametrize("name", models.MODELS)
def test_every_built_in_model_passes(name: str) -> None:
    kind = models.MODELS[name]
    x, y = rows(40)
    classes = 2 if kind.task == "classification" else 0
    check_model(kind.build(2, classes, kind.settings(kind=name)), x, (y > 0).astype(np.int32) if classes else y)


def linear(**changes: Any) -> models.Model:
    """A Gaussian model of one's own, noise sd 0.5."""
    given: dict[str, Any] = {
        "log_prior": lambda theta: -0.5 * theta @ theta,
        "log_likelihood": lambda theta, x, y: -2 * (y - x @ theta) ** 2,
        "init": lambda key: jax.random.normal(key, (2,)),
        "predict": lambda theta, x: jnp.stack([x @ theta, jnp.full(len(x), jnp.log(4.0))], axis=1),
        "task": "regression",
        "likelihood": "gaussian",
    }
    return models.custom(2, **{**given, **changes})


def test_a_declared_gaussian_passes() -> None:
    check_model(linear(), *rows(20))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            lambda: own(likelihood="gaussian"),
            r"asks for the log-likelihood at y = .*, where that is not finite.*'other'",
        ),
        (
            lambda: own(log_likelihood=lambda t, x, y: jnp.sum(x @ t)),
            r"log_likelihood\(theta, x, y\).*\(8,\) here.*\(\)",
        ),
        (
            lambda: own(log_prior=lambda theta: -0.5 * theta**2),
            r"log_prior\(theta\) must return a scalar.*got shape \(2,",
        ),
        (lambda: own(init=lambda key: jnp.zeros(3)), r"init\(key\) must return one theta of length dim = 2.*\(3,\)"),
        (
            lambda: own(predict=lambda theta, x: x @ theta),
            r"predict\(theta, x\) must return rows x 2.*\(8, 2\).*\(8,\)",
        ),
        (
            lambda: own(predict=lambda theta, x: x @ jnp.ones(5)),
            r"predict.* failed for theta of shape \(2,\), x of shape",
        ),
        (lambda: own(sample=lambda key, theta, x: jnp.ones(3)), r"sample\(key, theta, x\).*one y for each row.*\(3,\)"),
        (
            lambda: own(log_prior=lambda theta: jnp.log(-theta @ theta)),
            r"log_prior is not finite at the start \(got nan",
        ),
        (
            lambda: own(log_likelihood=lambda t, x, y: y * jax.lax.stop_gradient(x @ t) - jnp.exp(x @ t)),
            "gradient of log_likelihood .*does not match",
        ),
        (
            lambda: own(log_likelihood=lambda t, x, y: y * jnp.round(x @ t) - jnp.exp(jnp.round(x @ t))),
            "gradient of log_likelihood is zero at the start .*round",
        ),
        (lambda: own(sample=lambda key, t, x: 5 + sample(key, t, x)), "score does not average to zero.*sample"),
        (
            lambda: linear(predict=lambda theta, x: jnp.stack([x @ theta, jnp.zeros(len(x))], axis=1)),
            "curvature does not match finite differences.*variance that predict gives",
        ),
        (
            lambda: linear()._replace(full_curvature=lambda blocks, x, weights: jnp.zeros((2, 2))),
            "curvature is zero where the score varies",
        ),
        (
            lambda: linear()._replace(full_curvature=lambda blocks, x, weights: jnp.zeros(2)),
            r"full_curvature\(blocks, x, weights\) must return shape \(2, 2\).*got \(2,\)",
        ),
        (
            lambda: linear()._replace(diagonal_curvature=lambda b, x, w, k, s: (jnp.nan * b[0],)),
            "diagonal curvature is not finite",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_with_a_sentence(model: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_model(model(), *rows(20))


def test_targets_out_of_the_support_are_refused() -> None:
    x, y = rows(20)
    with pytest.raises(InputError, match=r"expects counts, whole numbers from 0, got y = -0\.5 in row 3"):
        check_model(models.poisson_regression(2), x, np.where(np.arange(20) == 3, -0.5, y))
    with pytest.raises(InputError, match="labels from 0 to 1, got 0 to 5"):
        check_model(models.blr(2), x, np.arange(20) % 6)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"likelihood": "poisson"}, "likelihood must be one of categorical, gaussian, other"),
        ({"likelihood": "categorical"}, "does not go with task 'regression'"),
        ({"task": "counts"}, "task must be one of"),
        ({"target": "label"}, "target must be one of"),
    ],
)
def test_unknown_options_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        own(**given)


def test_a_normalised_likelihood_is_the_predictive_density() -> None:
    x, y = rows(5)
    theta = jnp.asarray([[0.5, -0.8], [0.0, 0.1]], jnp.float32)
    model = own(normalised=True)
    assert own().log_density is None
    assert model.log_density is not None
    found = model.log_density((theta,), x, y)
    np.testing.assert_allclose(found, jax.scipy.stats.poisson.logpmf(y[:, None], jnp.exp(x @ theta.T)), rtol=1e-5)
