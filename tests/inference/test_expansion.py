"""Expected expansions: exact for linear models, against Monte Carlo and autodiff, identities of Bonnet and Price."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.data.shard import make_shard
from fedstein.errors import InputError
from fedstein.inference.expansion import antithetic, expand, positive_part, quadrature
from fedstein.models import Glm, Model, blr, custom

INPUTS = 3


def glm_model(glm: Glm, widths: tuple[int, ...]) -> Model:
    """A model whose likelihood is that of the GLM; its prior is of no interest here."""

    def log_likelihood(blocks: Any, x: Any, y: Any, weights: Any) -> Any:
        def one(*parts: Any) -> Any:
            f = x @ parts[glm.block].reshape(glm.predictors, -1).T
            extra = jnp.zeros(0) if glm.extra is None else parts[glm.extra]
            return weights @ jax.vmap(glm.log_density, (0, 0, None))(f, y, extra)

        return jax.vmap(one)(*blocks)

    base = blr(INPUTS - 1)
    return base._replace(widths=widths, log_likelihood=log_likelihood, glm=glm, gaussian_given=None)


def gauss(f: Any, y: Any, extra: Any) -> Any:
    """Noise of precision 4."""
    return -2.0 * (y - f[0]) ** 2


def noisy(f: Any, y: Any, extra: Any) -> Any:
    """Noise whose log-precision is a parameter."""
    return 0.5 * extra[0] - 0.5 * jnp.exp(extra[0]) * (y - f[0]) ** 2


def poisson(f: Any, y: Any, extra: Any) -> Any:
    return jax.scipy.stats.poisson.logpmf(y, jnp.exp(f[0]))


def softmax(f: Any, y: Any, extra: Any) -> Any:
    return jax.nn.log_softmax(f)[y]


MODELS = {
    "logistic": blr(INPUTS - 1),
    "linear": glm_model(Glm(gauss), (INPUTS,)),
    "noise": glm_model(Glm(noisy, extra=1, concave=False), (INPUTS, 1)),
    "poisson": glm_model(Glm(poisson), (INPUTS,)),
    "softmax": glm_model(Glm(softmax, predictors=3), (3 * INPUTS,)),
}


def case(name: str, rows: int = 21) -> tuple[Model, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A model, rows for it (a number that is padded), and the moments of q."""
    model, rng = MODELS[name], np.random.default_rng(0)
    x = rng.standard_normal((rows, INPUTS)).astype(np.float32)
    y = {
        "logistic": rng.integers(0, 2, rows),
        "linear": rng.standard_normal(rows),
        "noise": rng.standard_normal(rows),
        "poisson": rng.poisson(2.0, rows),
        "softmax": rng.integers(0, 3, rows),
    }[name]
    root = 0.4 * np.tril(rng.standard_normal((model.dim, model.dim)))
    covariance = root @ root.T + 0.05 * np.eye(model.dim)
    return (
        model,
        x,
        y.astype(np.float32 if y.dtype.kind == "f" else np.int32),
        rng.standard_normal(model.dim) * 0.5,
        covariance,
    )


def monte_carlo(
    model: Model, x: np.ndarray, y: np.ndarray, mean: np.ndarray, covariance: np.ndarray, draws: int = 20_000
) -> tuple[np.ndarray, np.ndarray]:
    """E_q of gradient and minus Hessian of the whole log-likelihood, by autodiff at draws of q."""
    with jax.enable_x64(True):
        theta = jnp.asarray(antithetic(mean, covariance, draws, 1))
        rows = jnp.asarray(x, jnp.float64), jnp.asarray(y), jnp.ones(len(x))

        def value(one: Any) -> Any:
            edges = np.cumsum((0, *model.widths))
            return model.log_likelihood(tuple(one[None, a:b] for a, b in itertools.pairwise(edges)), *rows)[0]

        gradient = jax.jit(jax.vmap(jax.grad(value)))(theta).mean(axis=0)
        hessian = jax.jit(lambda t: jax.lax.map(jax.hessian(value), t, batch_size=1000).mean(axis=0))(theta)
        return np.asarray(gradient), -np.asarray(hessian)


def test_a_linear_gaussian_model_is_expanded_exactly() -> None:
    model, x, y, mean, covariance = case("linear")
    site = expand(model, make_shard(x, y), mean, covariance)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(site.precision, 4 * wide.T @ wide, atol=1e-6)
    np.testing.assert_allclose(site.eta, 4 * wide.T @ y, atol=1e-6)


@pytest.mark.parametrize("name", ["logistic", "noise", "poisson", "softmax"])
def test_quadrature_agrees_with_monte_carlo(name: str) -> None:
    model, x, y, mean, covariance = case(name)
    site = expand(model, make_shard(x, y), mean, covariance)
    gradient, curved = monte_carlo(model, x, y, mean, covariance)
    scale = np.abs(curved).max()
    tolerance = 0.02
    np.testing.assert_allclose(site.precision, positive_part(curved), atol=tolerance * scale)
    np.testing.assert_allclose(site.eta - site.precision @ mean, gradient, atol=tolerance * scale)
    assert np.linalg.eigvalsh(site.precision)[0] > -1e-9 * scale


@pytest.mark.parametrize("name", ["logistic", "poisson", "softmax", "noise"])
def test_a_q_without_width_gives_the_derivatives_at_its_mean(name: str) -> None:
    model, x, y, mean, _ = case(name)
    none = np.zeros((model.dim, model.dim))
    site = expand(model, make_shard(x, y), mean, none)
    gradient, curved = monte_carlo(model, x, y, mean, none, draws=2)
    np.testing.assert_allclose(site.precision, positive_part(curved), atol=1e-8 * np.abs(curved).max())
    np.testing.assert_allclose(site.eta - site.precision @ mean, gradient, atol=1e-8 * np.abs(gradient).max())


def expected_value(model: Model, shard: Any, mean: np.ndarray, covariance: np.ndarray) -> float:
    """E_q[log p] by the same one-dimensional quadrature."""
    points, shares = quadrature(1)
    x = np.asarray(shard.x, np.float64)[: shard.rows]
    width = x.shape[1]
    sd = np.sqrt(np.einsum("id,de,ie->i", x, covariance[:width, :width], x))
    f = (x @ mean[:width])[:, None] + sd[:, None] * points[:, 0]
    signs = 2.0 * np.asarray(shard.y)[: shard.rows, None] - 1
    return float(np.sum(-np.logaddexp(0, -signs * f) @ shares))


def test_bonnets_and_prices_identities_hold() -> None:
    """d/dm E_q[log p] = E_q[d log p], and d/dV E_q[log p] = E_q[d2 log p] / 2, by differences."""
    model, x, y, mean, covariance = case("logistic")
    shard = make_shard(x, y)
    site = expand(model, shard, mean, covariance)
    gradient = site.eta - site.precision @ mean
    step = 1e-4
    for j in range(INPUTS):
        along = step * np.eye(model.dim)[j]
        up, down = (expected_value(model, shard, mean + s * along, covariance) for s in (1, -1))
        assert (up - down) / (2 * step) == pytest.approx(gradient[j], abs=1e-5)
        wider = step * np.outer(np.eye(model.dim)[j], np.eye(model.dim)[j])
        up, down = (expected_value(model, shard, mean, covariance + s * wider) for s in (1, -1))
        assert (up - down) / step == pytest.approx(-site.precision[j, j], abs=1e-5)


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_a_model_that_does_not_say_it_is_linear_is_averaged_over_draws(name: str) -> None:
    model, x, y, mean, covariance = case(name)
    shard = make_shard(x, y)
    exact = expand(model, shard, mean, covariance)
    averaged = expand(model._replace(glm=None), shard, mean, covariance, draws=1000)
    scale = np.abs(exact.precision).max()
    np.testing.assert_allclose(averaged.precision, exact.precision, atol=0.06 * scale)
    np.testing.assert_allclose(averaged.eta, exact.eta, atol=0.15 * scale)
    assert np.linalg.eigvalsh(averaged.precision)[0] > -1e-9 * scale


def test_temperature_divides_and_padding_counts_for_nothing() -> None:
    model, x, y, mean, covariance = case("logistic")
    cold, warm = (expand(model, make_shard(x, y), mean, covariance, temperature=t) for t in (1.0, 4.0))
    np.testing.assert_allclose(warm.eta, cold.eta / 4, rtol=1e-12)
    np.testing.assert_allclose(warm.precision, cold.precision / 4, rtol=1e-12)
    halves = [expand(model, make_shard(x[part], y[part]), mean, covariance) for part in (slice(0, 9), slice(9, 21))]
    np.testing.assert_allclose(halves[0].precision + halves[1].precision, cold.precision, rtol=1e-9)
    np.testing.assert_allclose(halves[0].eta + halves[1].eta, cold.eta, rtol=1e-9, atol=1e-9)


def test_a_likelihood_without_finite_derivatives_is_refused() -> None:
    model = custom(
        1,
        log_prior=lambda theta: -0.5 * theta @ theta,
        log_likelihood=lambda theta, x, y: jnp.log(theta[0] * x[:, 0]),
        init=lambda key: jnp.zeros(1),
        predict=lambda theta, x: jnp.zeros((x.shape[0], 2)),
    )
    shard = make_shard(np.ones((4, 1)), np.zeros(4, np.int32))
    with pytest.raises(InputError, match="not finite"):
        expand(model, shard, np.zeros(1), np.zeros((1, 1)))
    with pytest.raises(InputError, match="finite mean"):
        expand(model, shard, np.full(1, np.nan), np.zeros((1, 1)))
