"""Every model against densities of one theta written with SciPy, and scores against autodiff of those by JAX."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import stats
from scipy.special import expit, log_softmax, logsumexp

from fedstein import models
from fedstein.data.shard import make_shard, whole

N, ROWS, FEATURES, CLASSES = 4, 6, 3, 3


class Case(NamedTuple):
    """A model beside an independent account of it: log-densities of one theta."""

    model: models.Model
    log_prior: Callable[[np.ndarray], float]  # normalised, with SciPy
    log_likelihood: Callable[[np.ndarray, np.ndarray, Any], np.ndarray]  # one value a row, with NumPy and SciPy
    naive_prior: Callable[[Array], Array]  # for autodiff, up to a constant
    naive_likelihood: Callable[[Array, Array, Any], Array]


def layers(theta: Any, sizes: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """[(W, b), ...] of one theta = [W1, b1, W2, b2, ...], each W outputs x inputs."""
    found, at = [], 0
    for inputs, outputs in itertools.pairwise(sizes):
        w = theta[at : at + inputs * outputs].reshape(outputs, inputs)
        b = theta[at + inputs * outputs : at + inputs * outputs + outputs]
        found.append((w, b))
        at += inputs * outputs + outputs
    return found


def network(theta: Any, sizes: tuple[int, ...], row: Any) -> Any:
    """One row through one network, layer by layer."""
    signal = row
    for depth, (w, b) in enumerate(layers(theta, sizes)):
        signal = w @ (signal * (signal > 0) if depth else signal) + b
    return signal


def blr_case() -> Case:
    shape, rate = 1.5, 0.3

    def log_prior(theta: np.ndarray) -> float:
        w, log_xi = theta[:-1], theta[-1]
        xi = math.exp(log_xi)
        gamma = stats.gamma(shape, scale=1 / rate).logpdf(xi) + log_xi  # + log |d xi / d log xi|
        return float(stats.norm(0, xi**-0.5).logpdf(w).sum() + gamma)

    def naive_prior(theta: Array) -> Array:
        xi = jnp.exp(theta[-1])
        normal = jnp.sum(0.5 * jnp.log(xi) - 0.5 * xi * theta[:-1] ** 2)
        return normal + (shape - 1) * jnp.log(xi) - rate * xi + theta[-1]

    return Case(
        models.blr(FEATURES - 1, prior_shape=shape, prior_rate=rate),
        log_prior,
        lambda theta, x, y: stats.bernoulli(expit(x @ theta[:-1])).logpmf(y),
        naive_prior,
        lambda theta, x, y: jnp.log(
            jnp.where(y == 1, 1 / (1 + jnp.exp(-x @ theta[:-1])), 1 / (1 + jnp.exp(x @ theta[:-1])))
        ),
    )


def classifier_case(hidden: tuple[int, ...]) -> Case:
    sizes, precision = (FEATURES, *hidden, CLASSES), 2.0

    def naive_likelihood(theta: Array, x: Array, y: Array) -> Array:
        outputs = jax.vmap(lambda row: network(theta, sizes, row))(x)
        return jnp.log(jnp.take_along_axis(jnp.exp(outputs), y[:, None], 1)[:, 0] / jnp.sum(jnp.exp(outputs), axis=1))

    return Case(
        models.bnn_classifier(FEATURES, CLASSES, hidden=hidden, prior_precision=precision),
        lambda theta: float(stats.norm(0, precision**-0.5).logpdf(theta).sum()),
        lambda theta, x, y: np.array([log_softmax(network(theta, sizes, row))[c] for row, c in zip(x, y, strict=True)]),
        lambda theta: -0.5 * precision * theta @ theta,
        naive_likelihood,
    )


def regressor_case(hidden: tuple[int, ...]) -> Case:
    sizes, precision, shape, rate = (FEATURES, *hidden, 1), 2.0, 1.5, 0.3

    def log_prior(theta: np.ndarray) -> float:
        gamma = stats.gamma(shape, scale=1 / rate).logpdf(math.exp(theta[-1])) + theta[-1]
        return float(stats.norm(0, precision**-0.5).logpdf(theta[:-1]).sum() + gamma)

    def naive_likelihood(theta: Array, x: Array, y: Array) -> Array:
        mean = jax.vmap(lambda row: network(theta[:-1], sizes, row)[0])(x)
        gamma = jnp.exp(theta[-1])
        return jnp.log(jnp.sqrt(gamma / (2 * math.pi)) * jnp.exp(-0.5 * gamma * (y - mean) ** 2))

    return Case(
        models.bnn_regressor(FEATURES, hidden=hidden, prior_precision=precision, prior_shape=shape, prior_rate=rate),
        log_prior,
        lambda theta, x, y: np.array(
            [
                stats.norm(network(theta[:-1], sizes, row)[0], math.exp(-0.5 * theta[-1])).logpdf(v)
                for row, v in zip(x, y, strict=True)
            ]
        ),
        lambda t: -0.5 * precision * t[:-1] @ t[:-1] + (shape - 1) * t[-1] - rate * jnp.exp(t[-1]) + t[-1],
        naive_likelihood,
    )


CASES: dict[str, Callable[[], Case]] = {
    "blr": blr_case,
    "classifier 5": lambda: classifier_case((5,)),
    "classifier 4-2": lambda: classifier_case((4, 2)),
    "classifier 3-2-4": lambda: classifier_case((3, 2, 4)),
    "regressor 5": lambda: regressor_case((5,)),
    "regressor 4-2": lambda: regressor_case((4, 2)),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]()


def rows_for(model: models.Model, dtype: Any, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    x = draw.normal(size=(rows, FEATURES)).astype(dtype)
    if model.task == "regression":
        return x, draw.normal(size=rows).astype(dtype)
    return x, draw.integers(0, model.classes, rows).astype(np.int32)


def particles_for(model: models.Model, dtype: Any) -> np.ndarray:
    return (0.7 * np.random.default_rng(2).normal(size=(N, model.dim))).astype(dtype)


class Evaluated(NamedTuple):
    log_prior: np.ndarray
    log_likelihood: np.ndarray
    prior_score: np.ndarray  # N x d
    likelihood_score: np.ndarray


def evaluator(model: models.Model) -> Callable[..., Evaluated]:
    """Everything a model says of N x d particles, as one program."""

    @jax.jit
    def run(theta: Array, x: Array, y: Array, weights: Array) -> tuple[Array, ...]:
        blocks = model.split(theta)
        prior, data = model.prior_score(blocks), model.likelihood_score(blocks, x, y, weights)
        values = model.log_prior(blocks), model.log_likelihood(blocks, x, y, weights)
        return *values, models.join(prior), models.join(data)

    return lambda *arguments: Evaluated(*map(np.asarray, run(*arguments)))


def test_values_are_scipys_and_scores_their_gradients(case: Case, precision: Any) -> None:
    theta, (x, y) = particles_for(case.model, precision.dtype), rows_for(case.model, precision.dtype)
    weights = np.linspace(0.5, 2, ROWS).astype(precision.dtype)
    got = evaluator(case.model)(theta, x, y, weights)
    assert all(array.dtype == precision.dtype for array in got)
    exact = theta.astype(np.float64)
    precision.close(got.log_likelihood, [weights @ case.log_likelihood(t, x, y) for t in exact])
    prior = np.array([case.log_prior(t) for t in exact])  # the model leaves constants out
    precision.close(got.log_prior - got.log_prior[0], prior - prior[0])

    @jax.jit
    @jax.vmap
    def naive(theta: Array) -> tuple[Array, Array]:
        data = jax.grad(lambda t: weights @ case.naive_likelihood(t, jnp.asarray(x), jnp.asarray(y)))
        return jax.grad(case.naive_prior)(theta), data(theta)

    prior_score, likelihood_score = naive(theta)
    precision.close(got.prior_score, prior_score, factor=2)
    precision.close(got.likelihood_score, likelihood_score, factor=5)


def test_rows_of_weight_zero_change_nothing_and_weights_scale(case: Case) -> None:
    evaluate, theta = evaluator(case.model), particles_for(case.model, np.float32)
    x, y = rows_for(case.model, np.float32, 9)
    batch = whole(make_shard(x, y))
    x, y, ones = np.array(batch.x), np.array(batch.y), np.array(batch.weights)
    assert ones.tolist() == [1] * 9 + [0]
    first, rest = ones * (np.arange(10) < 6), ones * (np.arange(10) >= 6)
    full = evaluate(theta, x, y, ones)
    for kind in ("log_likelihood", "likelihood_score"):
        values = getattr(full, kind)
        parts = getattr(evaluate(theta, x, y, first), kind) + getattr(evaluate(theta, x, y, rest), kind)
        np.testing.assert_allclose(parts, values, rtol=1e-4, atol=1e-5)
        scaled = getattr(evaluate(theta, x, y, 2.5 * ones), kind)
        np.testing.assert_allclose(scaled, 2.5 * values, rtol=1e-4, atol=1e-5)
        x[9] = 100.0
        np.testing.assert_array_equal(getattr(evaluate(theta, x, y, ones), kind), values)
        x[8] = 100.0  # a row that does count
        assert np.any(getattr(evaluate(theta, x, y, ones), kind) != values)
        x[8:] = np.array(batch.x)[8:]


def test_predictions_average_probabilities_over_particles(case: Case) -> None:
    model = case.model
    theta, (x, _) = particles_for(model, np.float32), rows_for(model, np.float32)
    got = np.asarray(jax.jit(lambda t, x: model.predict(model.split(t), x))(theta, x))
    if model.task == "regression":
        sizes = (FEATURES, *model.widths[1:-3:2], 1)
        means = [[network(t[:-1].astype(float), sizes, row)[0] for t in theta] for row in x]
        np.testing.assert_allclose(got[:, :N], means, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got[:, N:], np.tile(theta[:, -1], (ROWS, 1)), rtol=1e-6)
        return
    each = np.stack(
        [
            [np.exp(case.log_likelihood(t.astype(float), x, np.full(ROWS, c))) for c in range(model.classes)]
            for t in theta
        ]
    )
    naive = np.mean(each, axis=0).T  # rows x classes
    np.testing.assert_allclose(np.exp(got), naive, rtol=1e-4)
    np.testing.assert_allclose(np.exp(got).sum(axis=1), 1, rtol=1e-5)


def test_split_and_join_are_inverse(case: Case) -> None:
    model = case.model
    theta = np.arange(N * model.dim, dtype=np.float32).reshape(N, model.dim)
    blocks = jax.jit(model.split)(theta)
    assert [b.shape for b in blocks] == [(N, width) for width in model.widths]
    np.testing.assert_array_equal(models.join(blocks), theta)
    assert jax.eval_shape(lambda: model.init(jax.random.key(0), N)).shape == (N, model.dim)


@pytest.mark.parametrize("hidden", [(7,), (7, 2), (2, 7, 3)], ids=str)
@pytest.mark.parametrize("task", ["classifier", "regressor"])
def test_shapes_for_any_depth(task: str, hidden: tuple[int, ...]) -> None:
    build = {
        "classifier": lambda: models.bnn_classifier(5, 4, hidden=hidden),
        "regressor": lambda: models.bnn_regressor(5, hidden=hidden),
    }
    model = build[task]()
    sizes = (5, *hidden, 4 if task == "classifier" else 1)
    weights = sum((a + 1) * b for a, b in itertools.pairwise(sizes))
    assert model.dim == weights + (task == "regressor")
    theta = jax.eval_shape(lambda: model.init(jax.random.key(0), 6))
    assert theta.shape == (6, model.dim)
    out = jax.eval_shape(lambda t: model.predict(model.split(t), jnp.zeros((9, 5))), theta)
    assert out.shape == ((9, 4) if task == "classifier" else (9, 12))


def moments_of(model: models.Model, n: int = 20_000) -> np.ndarray:
    return np.asarray(jax.jit(lambda: model.init(jax.random.key(3), n))(), np.float64)


@pytest.mark.parametrize(("start", "rate", "typical"), [("prior", 0.01, 0.08), ("wide", 100.0, 8.0)])
def test_the_blr_starts_with_the_xi_it_should(start: str, rate: float, typical: float) -> None:
    model = models.blr(2, start=start)
    theta = moments_of(model)
    xi = np.exp(theta[:, -1])
    np.testing.assert_allclose([xi.mean(), xi.std()], 1 / rate, rtol=0.05)
    np.testing.assert_allclose((theta[:, :-1] * np.sqrt(xi)[:, None]).std(axis=0), 1, rtol=0.03)  # w | xi ~ N(0, 1/xi)
    np.testing.assert_allclose(np.median(np.abs(theta[:, 0])), typical, rtol=0.1)  # a wide start is of order ten
    # E of a score is zero under the density it belongs to: the prior start is a draw from log_prior, the wide is not.
    score = np.concatenate(jax.jit(lambda t: model.prior_score(model.split(t)))(theta.astype(np.float32)), axis=1)
    biased = np.abs(score.mean(axis=0)) > 4 * score.std(axis=0) / math.sqrt(len(score))
    assert biased.any() == (start == "wide")


def test_networks_start_at_fan_in_or_at_the_prior() -> None:
    sizes = (3, 8, 2)
    theta = moments_of(models.bnn_classifier(3, 2, hidden=(8,), start="fan_in"), 4000)
    widths = models.bnn_classifier(3, 2, hidden=(8,)).widths
    w1, b1, w2, b2 = np.split(theta, np.cumsum(widths)[:-1], axis=1)
    np.testing.assert_allclose([w1.std(), w2.std()], [(sizes[0] + 1) ** -0.5, (sizes[1] + 1) ** -0.5], rtol=0.02)
    np.testing.assert_allclose([w1.mean(), w2.mean()], 0, atol=0.01)
    assert np.all(b1 == 0)
    assert np.all(b2 == 0)
    theta = moments_of(models.bnn_classifier(3, 2, hidden=(8,), prior_precision=4.0, start="prior"), 4000)
    np.testing.assert_allclose(theta.std(axis=0), 0.5, rtol=0.06)
    assert abs(np.corrcoef(theta[:, 0], theta[:, 24])[0, 1]) < 0.06  # W1 and b1 have keys of their own


@pytest.mark.slow
def test_the_regressor_starts_with_its_gamma() -> None:
    model = models.bnn_regressor(3, hidden=(2,), prior_shape=3.0, prior_rate=0.5)
    gamma = np.exp(moments_of(model)[:, -1])
    np.testing.assert_allclose([gamma.mean(), gamma.std()], [6, math.sqrt(12)], rtol=0.03)


def test_blr_rows_get_an_intercept() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    prepared = models.blr(2).prepare(x)
    np.testing.assert_array_equal(prepared, np.c_[x, np.ones(3)])
    assert prepared.dtype == np.float32


@pytest.mark.parametrize("build", [lambda s: models.blr(2, start=s), lambda s: models.bnn_classifier(2, 2, start=s)])
def test_an_unknown_start_is_refused(build: Callable[[str], models.Model]) -> None:
    with pytest.raises(ValueError, match="start"):
        build("priro")


def custom_blr() -> models.Model:
    case = blr_case()

    def predict(theta: Array, x: Array) -> Array:
        logits = x @ theta[:-1]
        return jnp.stack([jax.nn.log_sigmoid(-logits), jax.nn.log_sigmoid(logits)], axis=1)

    return models.custom(
        FEATURES + 1,
        log_prior=case.naive_prior,
        log_likelihood=case.naive_likelihood,
        init=lambda key: jax.random.normal(key, (FEATURES + 1,)),
        predict=predict,
        classes=2,
    )


def test_a_custom_model_with_the_functions_of_the_blr_is_the_blr(precision: Any) -> None:
    built, own = blr_case().model, custom_blr()
    assert own.dim == built.dim
    theta, (x, y) = particles_for(built, precision.dtype), rows_for(built, precision.dtype)
    weights = np.array([1, 1, 0.5, 2, 0, 0], precision.dtype)
    got, expected = (evaluator(m)(theta, x, y, weights) for m in (own, built))
    precision.close(got.prior_score, expected.prior_score, factor=3)
    precision.close(got.likelihood_score, expected.likelihood_score, factor=3)
    precision.close(got.log_likelihood, expected.log_likelihood, factor=3)
    got, expected = (jax.jit(lambda t, m=m: m.predict(m.split(t), x))(theta) for m in (own, built))
    precision.close(got, expected, factor=3)


def test_custom_particles_are_drawn_with_keys_of_their_own() -> None:
    theta = np.asarray(custom_blr().init(jax.random.key(0), 2000))
    np.testing.assert_allclose([theta.mean(), theta.std()], [0, 1], atol=0.05)
    assert len(np.unique(theta[:, 0])) == 2000


def test_a_custom_regression_predicts_means_then_log_precisions(linear_gaussian: Any) -> None:
    model = linear_gaussian.model()
    theta, x = (
        np.array([[1.0, 2.0], [0.0, -1.0]], np.float32),
        np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 1.0]], np.float32),
    )
    got = np.asarray(model.predict((jnp.asarray(theta),), jnp.asarray(x)))
    np.testing.assert_allclose(got[:, :2], x @ theta.T)
    np.testing.assert_allclose(got[:, 2:], -2 * math.log(linear_gaussian.noise_sd), rtol=1e-6)


def test_padding_that_a_custom_likelihood_cannot_take_does_not_poison_its_score() -> None:
    """Counts with exposure x: log(0 * exp(theta)) at a padded row is -inf, and 0 * inf is NaN in the backward pass."""
    model = models.custom(
        1,
        log_prior=lambda theta: -0.5 * theta[0] ** 2,
        log_likelihood=lambda theta, x, y: y * jnp.log(x[:, 0] * jnp.exp(theta[0])) - x[:, 0] * jnp.exp(theta[0]),
        init=lambda key: jax.random.normal(key, (1,)),
        predict=lambda theta, x: x,
    )
    draw = np.random.default_rng(0)
    x, y = draw.uniform(0.5, 2, (9, 1)), draw.poisson(2.0, 9)
    batch = whole(make_shard(x, y))
    assert batch.x.shape[0] > 9
    theta = np.array([[0.3], [-0.2]], np.float32)
    expected = y.sum() - x.sum() * np.exp(theta)
    got = evaluator(model)(theta, batch.x, batch.y, batch.weights)
    np.testing.assert_allclose(got.likelihood_score, expected, rtol=1e-5)
    np.testing.assert_allclose(
        got.log_likelihood,
        [
            stats.poisson(x[:, 0] * math.exp(t)).logpmf(y).sum() + sum(math.lgamma(v + 1) for v in y)
            for t in theta[:, 0]
        ],
        rtol=1e-5,
    )


def test_far_out_logits_stay_finite() -> None:
    """A wide start puts logits in the thousands: log-probabilities and scores must survive that."""
    model = models.blr(FEATURES - 1)
    theta = np.array([[3e3, -2e3, 1e3, 0.0], [-3e3, 2e3, 5e3, 1.0]], np.float32)
    x, y = rows_for(model, np.float32)
    assert all(np.all(np.isfinite(array)) for array in evaluator(model)(theta, x, y, np.ones(ROWS, np.float32)))
    out = np.asarray(model.predict(model.split(theta), x))
    assert np.all(np.isfinite(out))
    each = expit(theta[:, :-1].astype(float) @ x.T)
    np.testing.assert_allclose(np.exp(out[:, 1]), each.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(logsumexp(out, axis=1), 0, atol=1e-6)
