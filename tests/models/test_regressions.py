"""The regressions against SciPy, autodiff, finite differences and Monte Carlo expectations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import log_softmax

from fedstein import models
from fedstein.models.base import join
from fedstein.models.fisher import by_autodiff, diagonal_fisher, full_fisher, nearest_semidefinite, observed
from fedstein.models.negative_binomial_regression import dispersion_information, negative_binomial_log_density

N, ROWS, FEATURES, CLASSES = 3, 7, 2, 3
KEY = jax.random.key(0)
PRIOR = {"prior_shape": 1.5, "prior_rate": 0.4, "intercept_sd": 2.0}


class Case(NamedTuple):
    """A model beside SciPy's account of one theta."""

    model: models.Model
    log_prior: Callable[[np.ndarray], float]
    log_likelihood: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # one value for each row
    y: np.ndarray


def gamma_prior(log_value: float, shape: float, rate: float) -> float:
    return float(stats.gamma(shape, scale=1 / rate).logpdf(math.exp(log_value)) + log_value)


def coefficient_prior(coefficients: np.ndarray, log_xi: float) -> float:
    each = coefficients.reshape(-1, FEATURES + 1)
    weights = stats.norm(0, math.exp(-0.5 * log_xi)).logpdf(each[:, :-1]).sum()
    return float(weights + stats.norm(0, 2.0).logpdf(each[:, -1]).sum()) + gamma_prior(log_xi, 1.5, 0.4)


def binomial(theta: np.ndarray, x: np.ndarray) -> Any:
    mean, size = np.exp(x @ theta[:3]), math.exp(-theta[4])
    return stats.nbinom(size, size / (size + mean))


COUNTS = np.array([0.0, 1, 4, 2, 0, 7, 3])
CASES: dict[str, Callable[[], Case]] = {
    "linear": lambda: Case(
        models.linear_regression(FEATURES, **PRIOR, noise_shape=2.0, noise_rate=0.5),
        lambda t: coefficient_prior(t[:3], t[3]) + gamma_prior(t[4], 2.0, 0.5),
        lambda t, x, y: stats.norm(x @ t[:3], math.exp(-0.5 * t[4])).logpdf(y),
        np.linspace(-1, 2, ROWS),
    ),
    "poisson": lambda: Case(
        models.poisson_regression(FEATURES, **PRIOR),
        lambda t: coefficient_prior(t[:3], t[3]),
        lambda t, x, y: stats.poisson(np.exp(x @ t[:3])).logpmf(y),
        COUNTS,
    ),
    "negative_binomial": lambda: Case(
        models.negative_binomial_regression(FEATURES, **PRIOR, dispersion_shape=2.0, dispersion_rate=0.5),
        lambda t: coefficient_prior(t[:3], t[3]) + gamma_prior(t[4], 2.0, 0.5),
        lambda t, x, y: binomial(t, x).logpmf(y),
        COUNTS,
    ),
    "softmax": lambda: Case(
        models.softmax_regression(FEATURES, CLASSES, **PRIOR),
        lambda t: coefficient_prior(t[:-1], t[-1]),
        lambda t, x, y: np.take_along_axis(
            log_softmax(x @ t[:-1].reshape(CLASSES, 3).T, axis=1), y[:, None].astype(int), 1
        )[:, 0],
        np.array([0, 1, 2, 2, 0, 1, 2], np.int32),
    ),
}


def inputs(case: Case, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(5)
    theta = (0.5 * draw.normal(size=(N, case.model.dim))).astype(np.float32).astype(dtype)
    x = case.model.prepare(draw.normal(size=(ROWS, FEATURES)).astype(np.float32).astype(dtype))
    y = case.y if case.y.dtype == np.int32 else case.y.astype(dtype)
    return theta, x, y, np.array([1, 0.5, 2, 1, 0, 1, 1.5], dtype)


@pytest.mark.parametrize("name", CASES)
def test_densities_are_scipys(name: str, precision: Any) -> None:
    case = CASES[name]()
    theta, x, y, weights = inputs(case, precision.dtype)
    assert x.shape == (ROWS, FEATURES + 1)
    assert np.all(x[:, -1] == 1)

    @jax.jit
    def run(theta: jax.Array, x: jax.Array, y: jax.Array, weights: jax.Array) -> tuple[jax.Array, ...]:
        blocks = case.model.split(theta)
        return case.model.log_prior(blocks), case.model.log_likelihood(blocks, x, y, weights)

    prior, likelihood = (np.asarray(found, np.float64) for found in run(theta, x, y, weights))
    wide, rows = theta.astype(np.float64), x.astype(np.float64)
    expected = np.array([case.log_prior(t) for t in wide])
    precision.close(prior - prior[0], expected - expected[0], factor=5)  # up to a constant
    precision.close(likelihood, [case.log_likelihood(t, rows, case.y) @ weights for t in wide], factor=2)


@pytest.mark.parametrize("name", CASES)
def test_scores_are_finite_differences_of_scipys_densities(name: str, double: Any) -> None:
    case = CASES[name]()
    theta, x, y, weights = inputs(case)
    got = jax.jit(lambda t: join(case.model.likelihood_score(case.model.split(t), x, y, weights)))(theta)
    step = 1e-6
    for n, index in np.ndindex(*theta.shape):
        move = step * np.eye(case.model.dim)[index]
        change = case.log_likelihood(theta[n] + move, x, y) - case.log_likelihood(theta[n] - move, x, y)
        assert got[n, index] == pytest.approx(change @ weights / (2 * step), abs=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_closed_curvature_is_the_expected_hessian(name: str, double: Any) -> None:
    """Against minus the Hessian of the log-likelihood, averaged over labels of the model (Monte Carlo for counts)."""
    case = CASES[name]()
    model, (theta, x, _, weights) = case.model, inputs(case)
    blocks = model.split(jnp.asarray(theta))
    diagonal = join(jax.jit(lambda b: diagonal_fisher(model, b, x, weights, KEY, 0))(blocks))
    full = jax.jit(lambda b: full_fisher(model, b, x, weights, KEY, 0))(blocks)
    draws = 0
    if name in ("linear", "softmax"):
        expected = np.asarray(jax.jit(lambda b: by_autodiff(model, b, x, weights, KEY, 0, diagonal=False))(blocks))
    else:
        draws = 4000
        sampler = np.random.default_rng(1)

        def labels(t: np.ndarray) -> np.ndarray:
            given = stats.poisson(np.exp(x @ t[:3])) if name == "poisson" else binomial(t, x)
            return given.rvs(size=(draws, ROWS), random_state=sampler)

        tiled, shares = np.tile(x, (draws, 1)), np.tile(weights, draws) / draws
        drawn = [labels(t).ravel().astype(float) for t in theta]
        hessian = jax.jit(lambda t, y: observed(model, model.split(t), tiled, y, shares, diagonal=False)[0])
        expected = np.stack([hessian(t[None], d) for t, d in zip(theta, drawn, strict=True)])
    scale = np.abs(expected).max()
    tolerance = 0.05 if draws else 1e-9
    np.testing.assert_allclose(diagonal, np.einsum("nii->ni", expected), atol=tolerance * scale)
    np.testing.assert_allclose(full, expected.mean(axis=0), atol=tolerance * scale)
    np.testing.assert_allclose(np.diag(full), np.mean(diagonal, axis=0), atol=1e-9 * scale)
    assert np.linalg.eigvalsh(full).min() > -1e-9 * scale


def brute_information(mean: float, alpha: float) -> float:
    """E[(d log p / d log alpha)^2] over all counts that matter, by central differences of SciPy's pmf."""
    top = int(mean + 40 * math.sqrt(mean + alpha * mean**2)) + 50
    y, step = np.arange(top), 1e-4

    def log_pmf(log_alpha: float) -> np.ndarray:
        size = math.exp(-log_alpha)
        return stats.nbinom(size, size / (size + mean)).logpmf(y)

    slope = (log_pmf(math.log(alpha) + step) - log_pmf(math.log(alpha) - step)) / (2 * step)
    return float(np.exp(log_pmf(math.log(alpha))) @ slope**2)


@pytest.mark.parametrize("mean", [0.05, 1.0, 20.0, 90.0, 1000.0])
@pytest.mark.parametrize("alpha", [0.01, 0.3, 3.0])
def test_information_about_the_dispersion(mean: float, alpha: float, double: Any) -> None:
    got = float(dispersion_information(jnp.log(mean), jnp.log(alpha)))
    assert got == pytest.approx(brute_information(mean, alpha), rel=0.03, abs=1e-5)


def test_the_negative_binomial_keeps_its_digits_near_the_poisson() -> None:
    """In float32, with a dispersion of 1e-6: log Gamma(1e6 + y) - log Gamma(1e6) alone would have no digit right."""
    y = np.arange(12, dtype=np.float32)

    def total(log_alpha: jax.Array) -> jax.Array:
        return jnp.sum(negative_binomial_log_density(jnp.float32(1.2), y, log_alpha))

    value, slope = jax.jit(jax.value_and_grad(total))(jnp.float32(math.log(1e-6)))
    poisson = stats.poisson(math.exp(np.float32(1.2))).logpmf(np.arange(12)).sum()
    assert float(value) == pytest.approx(poisson, rel=1e-5)
    assert abs(float(slope)) < 1e-2


@pytest.mark.parametrize(("shape", "rate"), [(1.0, 1.0), (2.0, 0.5)])
def test_the_prior_of_a_weight_is_a_student_t(shape: float, rate: float, double: Any) -> None:
    """exp(log_prior) integrates over log xi to the t density with 2a degrees of freedom and scale sqrt(b / a)."""
    model = models.poisson_regression(1, prior_shape=shape, prior_rate=rate)
    density = jax.jit(lambda t: jnp.exp(model.log_prior(model.split(t))))
    grid = np.linspace(-40, 12, 4001)

    def marginal(w: float) -> float:
        theta = np.stack([np.full_like(grid, w), np.zeros_like(grid), grid], axis=1)
        return float(np.sum(density(theta)) * (grid[1] - grid[0]))

    t = stats.t(2 * shape, scale=math.sqrt(rate / shape))
    for w in (0.3, 2.0):
        assert marginal(w) / marginal(0.0) == pytest.approx(t.pdf(w) / t.pdf(0), rel=1e-4)
    assert np.isfinite(quad(marginal, 0, 5, limit=50, epsrel=1e-3)[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_start_at_the_prior_is_a_draw_from_it(name: str) -> None:
    """The expectation of a score is zero under the density that it belongs to; near zero it is not."""
    build = {
        "linear": models.linear_regression,
        "poisson": models.poisson_regression,
        "negative_binomial": models.negative_binomial_regression,
        "softmax": lambda features, **given: models.softmax_regression(features, CLASSES, **given),
    }[name]
    for start in ("prior", "zero"):
        model = build(FEATURES, start=start)
        theta = np.asarray(jax.jit(lambda model=model: model.init(jax.random.key(3), 4000))())
        assert theta.shape == (4000, model.dim)
        score = np.asarray(join(jax.jit(model.prior_score)(model.split(theta))))
        z = score.mean(axis=0) / (score.std(axis=0) / math.sqrt(len(score)))
        assert (np.abs(z).max() > 5) == (start == "zero")
    with pytest.raises(ValueError, match="start"):
        build(FEATURES, start="wide")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "poisson", "negative_binomial"])
def test_predictions_have_the_moments_of_the_samples(name: str) -> None:
    case = CASES[name]()
    model, (theta, x, y, _) = case.model, inputs(case, np.float32)
    blocks = model.split(jnp.asarray(theta[:1]))
    out = np.asarray(model.predict(blocks, x), np.float64)
    assert model.sample is not None
    drawn = np.asarray(jax.jit(lambda: model.sample(KEY, blocks, jnp.tile(x, (4000, 1))))()).reshape(4000, ROWS)
    variance = np.exp(-out[:, 1])
    assert np.all(np.abs(drawn.mean(axis=0) - out[:, 0]) < 5 * np.sqrt(variance / 4000))
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.25)
    if model.log_density is not None:
        expected = np.stack([case.log_likelihood(t, x.astype(float), y.astype(float)) for t in theta.astype(float)], 1)
        got = model.log_density(model.split(jnp.asarray(theta)), x, y)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_softmax_probabilities_are_averaged_over_particles(double: Any) -> None:
    case = CASES["softmax"]()
    theta, x, _, _ = inputs(case)
    out = np.asarray(case.model.predict(case.model.split(jnp.asarray(theta)), x))
    each = [np.exp(log_softmax(x @ t[:-1].reshape(CLASSES, 3).T, axis=1)) for t in theta]
    np.testing.assert_allclose(np.exp(out), np.mean(each, axis=0), rtol=1e-10)
    np.testing.assert_allclose(np.exp(out).sum(axis=1), 1, rtol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_the_glm_form_and_the_conditional_prior_are_those_of_the_model(name: str, double: Any) -> None:
    case = CASES[name]()
    model, (theta, x, y, weights) = case.model, inputs(case)
    blocks = model.split(jnp.asarray(theta))
    form, given = model.glm, model.gaussian_given
    assert form is not None
    assert given is not None
    each = jax.jit(jax.vmap(form.log_density, (0, 0, None)))
    for n in range(N):
        f = x @ np.asarray(blocks[form.block][n]).reshape(form.predictors, -1).T
        extra = jnp.zeros(0) if form.extra is None else blocks[form.extra][n]
        total = weights @ each(f, y, extra)
        assert float(total) == pytest.approx(float(model.log_likelihood(blocks, x, y, weights)[n]), rel=1e-10)
    precision = np.broadcast_to(given.precision(blocks), blocks[0].shape)
    np.testing.assert_allclose(model.prior_score(blocks)[given.block], -precision * blocks[0], rtol=1e-10)


def posterior_mode(model: models.Model, x: np.ndarray, y: np.ndarray, steps: int = 60) -> np.ndarray:
    """The mode of the posterior, by Newton steps with the model's own curvature and the prior's Hessian."""
    x, ones = jnp.asarray(model.prepare(x)), jnp.ones(len(x))

    @jax.jit
    def step(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        blocks = model.split(theta)
        score = join(model.likelihood_score(blocks, x, y, ones)) + join(model.prior_score(blocks))
        matrix = full_fisher(model, blocks, x, ones, KEY, 0, y)
        prior = -jax.hessian(lambda t: model.log_prior(model.split(t[None]))[0])(theta[0])
        matrix = matrix + nearest_semidefinite(prior) + 1e-3 * jnp.eye(model.dim)
        return theta + jnp.clip(jnp.linalg.solve(matrix, score[0]), -0.5, 0.5), jnp.max(jnp.abs(score))

    theta = model.init(KEY, 1)
    for _ in range(steps):
        theta, slope = step(theta)
    assert slope < 1e-4
    return np.asarray(theta)


@pytest.mark.slow
def test_linear_regression_reaches_ridges_error_on_diabetes(double: Any) -> None:
    from sklearn.linear_model import RidgeCV

    from fedstein import data

    rows = data.load("diabetes")
    model = models.linear_regression(rows.train_x.shape[1])
    x, y, test = (np.asarray(array, np.float64) for array in (rows.train_x, rows.train_y, rows.test_x))
    theta = posterior_mode(model, x, jnp.asarray(y))
    mean = model.predict(model.split(theta), model.prepare(test))[:, 0]

    def error(predicted: Any) -> float:
        return rows.target_scale * float(np.sqrt(np.mean((predicted - rows.test_y) ** 2)))

    ridge = error(RidgeCV(np.logspace(-2, 3, 30)).fit(x, y).predict(test))
    assert error(mean) == pytest.approx(ridge, rel=0.01)
    assert error(mean) < 55


@pytest.mark.parametrize("name", ["poisson", "negative_binomial"])
def test_count_models_recover_what_made_the_counts(name: str, double: Any) -> None:
    draw = np.random.default_rng(2)
    x = draw.normal(size=(800, 2))
    mean = np.exp(x @ [0.5, -0.8] + 1.0)
    if name == "poisson":
        model, y = models.poisson_regression(2), draw.poisson(mean)
    else:
        model, y = models.negative_binomial_regression(2), draw.poisson(mean * draw.gamma(2.0, 0.5, size=800))
    theta = posterior_mode(model, x, jnp.asarray(y, float))[0]
    np.testing.assert_allclose(theta[:3], [0.5, -0.8, 1.0], atol=0.12)
    if name == "negative_binomial":
        assert math.exp(theta[4]) == pytest.approx(0.5, abs=0.12)


def test_every_kind_is_registered_with_settings_that_build_it() -> None:
    for name in ("linear", "poisson", "negative_binomial", "softmax"):
        kind = models.MODELS[name]
        classes = 3 if kind.task == "classification" else 0
        model = kind.build(4, classes, kind.settings(kind=name))
        assert (model.name, model.task, model.target) == (name, kind.task, kind.traits.target)
        assert all(field.description for key, field in kind.settings.model_fields.items() if key != "kind")
        with pytest.raises(ValueError, match="greater than 0"):
            kind.settings(kind=name, intercept_sd=0.0)
