"""The Gauss-Newton matrix: closed forms and autodiff against J' H J with the Hessian of the loss in the outputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fedstein import models
from fedstein.models.base import join
from fedstein.models.chunks import sum_over_chunks
from fedstein.models.fisher import by_autodiff, diagonal_fisher, full_fisher

N, ROWS, FEATURES, CLASSES = 3, 7, 3, 3


class Case(NamedTuple):
    model: models.Model
    outputs: Callable[[Array, Array], Array]  # one theta, one row -> what the loss is a function of
    loss: Callable[[Array, Array], Array]  # outputs, label -> -log p


def network(theta: Array, sizes: tuple[int, ...], row: Array) -> Array:
    at, signal = 0, row
    for depth, (a, b) in enumerate(itertools.pairwise(sizes)):
        signal = jnp.maximum(signal, 0) if depth else signal
        signal = theta[at : at + a * b].reshape(b, a) @ signal + theta[at + a * b : at + a * b + b]
        at += a * b + b
    return signal


def classifier(*hidden: int) -> Case:
    return Case(
        models.bnn_classifier(FEATURES, CLASSES, hidden=hidden),
        lambda theta, row: network(theta, (FEATURES, *hidden, CLASSES), row),
        lambda out, y: jnp.log(jnp.sum(jnp.exp(out))) - out[y],
    )


def regressor(*hidden: int) -> Case:
    return Case(
        models.bnn_regressor(FEATURES, hidden=hidden),
        lambda theta, row: jnp.append(network(theta[:-1], (FEATURES, *hidden, 1), row), theta[-1]),
        lambda out, y: 0.5 * (jnp.exp(out[1]) * (y - out[0]) ** 2 - out[1]),
    )


def logistic() -> Case:
    return Case(
        models.blr(FEATURES - 1),
        lambda theta, row: row[None] @ theta[:-1],
        lambda out, y: jnp.log1p(jnp.exp(jnp.where(y == 1, -out[0], out[0]))),
    )


CASES: dict[str, Callable[[], Case]] = {
    "blr": logistic,
    "classifier 4": lambda: classifier(4),
    "classifier 3-2": lambda: classifier(3, 2),
    "regressor 4": lambda: regressor(4),
    "regressor 3-2": lambda: regressor(3, 2),
}


def inputs(case: Case, dtype: Any, rows: int = ROWS, scale: float = 0.8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Particles, rows and row weights, the same numbers in either precision."""
    draw = np.random.default_rng(3)
    theta = (scale * draw.normal(size=(N, case.model.dim))).astype(np.float32)
    x = draw.normal(size=(rows, FEATURES)).astype(np.float32)
    return theta.astype(dtype), x.astype(dtype), np.linspace(0.25, 2, rows).astype(np.float32).astype(dtype)


@lru_cache
def definition(name: str, scale: float = 0.8) -> np.ndarray:
    """N x d x d in float64: sum_i w_i J_i' E_y[d^2 loss] J_i, the expectation over y by many nodes."""
    with jax.enable_x64(True):
        case = CASES[name]()
        theta, x, weights = inputs(case, np.float64, scale=scale)
        nodes, shares = np.polynomial.hermite_e.hermegauss(12)

        def expected_hessian(out: Array) -> Array:
            if case.model.task == "regression":
                labels, chances = out[0] + nodes * jnp.exp(-0.5 * out[1]), jnp.asarray(shares / shares.sum())
            else:
                labels = jnp.arange(case.model.classes)
                chances = jnp.exp(-jax.vmap(case.loss, (None, 0))(out, labels))
            return jnp.tensordot(chances, jax.vmap(jax.hessian(case.loss), (None, 0))(out, labels), 1)

        def one(t: Array, row: Array, weight: Array) -> Array:
            jacobian = jax.jacobian(case.outputs)(t, row)
            return weight * jacobian.T @ expected_hessian(case.outputs(t, row)) @ jacobian

        over_rows = jax.vmap(one, (None, 0, 0))
        return np.asarray(jax.jit(jax.vmap(lambda t: over_rows(t, x, weights).sum(axis=0)))(theta))


KEY = jax.random.key(0)


@pytest.mark.parametrize("name", CASES)
def test_closed_forms_and_autodiff_are_the_definition(name: str, precision: Any) -> None:
    case = CASES[name]()
    model, (theta, x, weights) = case.model, inputs(case, precision.dtype)

    @jax.jit
    def run(theta: Array, x: Array, weights: Array) -> tuple[Array, ...]:
        blocks = model.split(theta)
        closed = join(diagonal_fisher(model, blocks, x, weights, KEY, 0))
        plain = model._replace(full_curvature=None)
        full = full_fisher(model, blocks, x, weights, KEY, 0)
        return closed, by_autodiff(plain, blocks, x, weights, KEY, 0, diagonal=False), full

    closed, each, full = run(theta, x, weights)
    exact = definition(name)
    assert model.diagonal_curvature is not None
    assert closed.dtype == each.dtype == full.dtype == precision.dtype
    precision.close(closed, np.einsum("nii->ni", exact), factor=2)
    precision.close(each, exact, factor=2)
    precision.close(full, exact.mean(axis=0), factor=2)
    if name.startswith("regressor"):  # of log gamma: one half a row, and it is uncorrelated with the weights
        np.testing.assert_allclose(closed[:, -1], weights.sum() / 2, rtol=1e-5)
        assert np.abs(np.asarray(each)[:, -1, :-1]).max() < 1e-4
    assert np.linalg.eigvalsh(np.asarray(each, np.float64)).min() > -1e-4


@pytest.mark.parametrize("name", ["classifier 4", "classifier 3-2", "regressor 4"])
def test_the_diagonal_by_autodiff_is_that_of_the_matrix(name: str) -> None:
    case = CASES[name]()
    theta, x, weights = inputs(case, np.float32)
    plain = case.model._replace(diagonal_curvature=None)
    got = jax.jit(lambda t: join(diagonal_fisher(plain, plain.split(t), x, weights, KEY, 0)))(theta)
    exact = np.einsum("nii->ni", definition(name))
    np.testing.assert_allclose(got, exact, atol=2e-5 * exact.max())


EVEN = 0.3  # particles near zero: no label is so rare that its standard error is not known


def close_to_the_mean(draws: np.ndarray, expected: np.ndarray) -> None:
    """Within five standard errors, and with errors small enough to tell."""
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - expected) <= 5 * error + 1e-4)
    assert error.max() < 0.1 * np.abs(expected).max()
    assert draws.std(axis=0).max() > 0.05 * np.abs(expected).max()  # it did sample


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "autodiff"])
@pytest.mark.parametrize(
    ("name", "samples"), [("blr", 2), ("classifier 4", 1), ("classifier 4", 2), ("regressor 4", 2)]
)
def test_sampled_labels_are_unbiased_and_never_negative(name: str, samples: int, closed: bool) -> None:
    case = CASES[name]()
    model = case.model if closed else case.model._replace(diagonal_curvature=None)
    theta, x, weights = inputs(case, np.float32, scale=EVEN)
    blocks = model.split(jnp.asarray(theta))

    @jax.jit
    def run(keys: Array) -> Array:
        return jax.lax.map(lambda key: join(diagonal_fisher(model, blocks, x, weights, key, samples)), keys)

    draws = np.asarray(run(jax.random.split(jax.random.key(1), 1500)), np.float64)
    assert draws.min() >= 0
    close_to_the_mean(draws, np.einsum("nii->ni", definition(name, EVEN)))
    assert np.any(draws[0, 0] != draws[1, 0])


def test_a_sampled_matrix_is_unbiased_and_positive_semidefinite() -> None:
    case = CASES["blr"]()
    theta, x, weights = inputs(case, np.float32, scale=EVEN)
    blocks = case.model.split(jnp.asarray(theta))
    run = jax.jit(lambda keys: jax.lax.map(lambda k: full_fisher(case.model, blocks, x, weights, k, 1), keys))
    draws = np.asarray(run(jax.random.split(jax.random.key(1), 1500)), np.float64)
    close_to_the_mean(draws, definition("blr", EVEN).mean(axis=0))
    assert np.linalg.eigvalsh(draws).min() > -1e-4


@pytest.mark.parametrize("name", ["blr", "classifier 3-2", "regressor 4"])
def test_rows_of_weight_zero_contribute_nothing_and_weights_add_up(name: str) -> None:
    case = CASES[name]()
    model, (theta, x, weights) = case.model, inputs(case, np.float32)

    @jax.jit
    def run(x: Array, weights: Array) -> tuple[Array, Array]:
        blocks = model.split(jnp.asarray(theta))
        closed = join(diagonal_fisher(model, blocks, x, weights, KEY, 0))
        return closed, full_fisher(model, blocks, x, weights, KEY, 0)

    first = weights * (np.arange(ROWS) < 4)
    far = np.where(np.arange(ROWS)[:, None] < 4, x, 50.0).astype(np.float32)
    for got, same in zip(run(far, first), run(x, first), strict=True):
        np.testing.assert_array_equal(got, same)
    for part, rest, all_rows in zip(run(x, first), run(x, weights - first), run(x, weights), strict=True):
        np.testing.assert_allclose(part + rest, all_rows, rtol=1e-4, atol=1e-5)
        assert np.abs(np.asarray(part - all_rows)).max() > 1e-2


def test_labels_are_the_models_and_not_the_datas(linear_gaussian: Any, precision: Any) -> None:
    """A model of one's own, linear with known noise: X'X / noise^2 everywhere, by autodiff, in pieces of 64 rows."""
    model = linear_gaussian.model()
    draw = np.random.default_rng(0)
    x, weights = (draw.normal(size=s).astype(precision.dtype) for s in ((150, 2), 150))
    weights = np.abs(weights)
    theta = draw.normal(size=(N, 2)).astype(precision.dtype)
    run = jax.jit(lambda t: full_fisher(model, model.split(t), x, weights, KEY, 0))
    precision.close(run(theta), (x.T * weights) @ x / linear_gaussian.noise_sd**2, factor=2)
    diagonal = jax.jit(lambda t: join(diagonal_fisher(model, model.split(t), x, weights, KEY, 0)))(theta)
    precision.close(diagonal, np.tile(weights @ x**2 / linear_gaussian.noise_sd**2, (N, 1)), factor=2)


def test_a_custom_classifier_has_the_blrs_curvature(precision: Any) -> None:
    case = logistic()

    def predict(theta: Array, x: Array) -> Array:
        logits = x @ theta[:-1]
        return jnp.stack([jax.nn.log_sigmoid(-logits), jax.nn.log_sigmoid(logits)], axis=1)

    own = models.custom(
        case.model.dim,
        log_prior=lambda theta: -0.5 * theta @ theta,
        log_likelihood=lambda theta, x, y: jnp.take_along_axis(predict(theta, x), y[:, None], 1)[:, 0],
        init=lambda key: jax.random.normal(key, (case.model.dim,)),
        predict=predict,
        classes=2,
    )
    theta, x, weights = inputs(case, precision.dtype)
    got = jax.jit(lambda t: full_fisher(own, own.split(t), x, weights, KEY, 0))(theta)
    precision.close(got, definition("blr").mean(axis=0), factor=2)


@pytest.mark.parametrize("rows", [20, 26, 41])
def test_a_shard_in_pieces_has_the_curvature_of_the_whole(rows: int) -> None:
    case = classifier(3, 2)
    model, (theta, x, weights) = case.model, inputs(case, np.float32, rows)

    @jax.jit
    def run(theta: Array) -> tuple[Array, Array]:
        blocks = model.split(theta)

        def piece(number: Array, x: Array, w: Array) -> tuple[Array, ...]:
            return diagonal_fisher(model, blocks, x, w, KEY, 0)

        return join(sum_over_chunks(piece, jnp.asarray(x), jnp.asarray(weights), size=8)), join(
            piece(jnp.uint32(0), x, weights)
        )

    pieces, at_once = run(theta)
    np.testing.assert_allclose(pieces, at_once, rtol=1e-4, atol=1e-5)
