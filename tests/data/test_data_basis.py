"""The shared basis of the inputs: orthogonal, invertible, made of sums alone, and invisible from outside."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein import models
from fedstein.data import basis
from fedstein.data.basis import find_basis, inputs_of, moments, reflections, restore, restore_particles, rotate
from fedstein.files import pack, unpack
from fedstein.models.base import join

INPUTS = 6


def rows(seed: int, n: int = 40, inputs: int = INPUTS) -> np.ndarray:
    """Correlated columns of very different size, the way pixels are."""
    draw = np.random.default_rng(seed)
    return (
        draw.normal(size=(n, inputs)) * 2.0 ** -np.arange(inputs) @ np.linalg.qr(draw.normal(size=(inputs, inputs)))[0]
    )


def found(rank: int, *clients: np.ndarray) -> basis.Rotation:
    return find_basis(lambda probe: sum(moments(x, probe) for x in clients), clients[0].shape[1], rank, 0)


def matrix(rotation: basis.Rotation) -> np.ndarray:
    return rotate(rotation, np.eye(inputs_of(rotation)))


@pytest.mark.parametrize("rank", [0, 1, 3, INPUTS, 50])
def test_a_rotation_is_orthogonal_and_restore_undoes_it(rank: int) -> None:
    rotation = found(rank, rows(0))
    q = matrix(rotation)
    assert set(rotation) == ({"v", "t"} if rank else {"u"})
    np.testing.assert_allclose(q @ q.T, np.eye(INPUTS), atol=1e-12)
    x = rows(1)
    np.testing.assert_allclose(restore(rotation, rotate(rotation, x)), x, atol=1e-12)
    np.testing.assert_allclose(restore(rotation, x), x @ q.T, atol=1e-12)
    single = rotate(rotation, x.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, x @ q, atol=1e-5)


def test_the_dense_basis_is_the_eigenvectors_of_the_sum_largest_first() -> None:
    clients = [rows(0), rows(1, 25), rows(2, 9)]
    everything = np.concatenate(clients)
    q = matrix(found(0, *clients))
    turned = q.T @ (everything.T @ everything) @ q
    np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-9 * turned.max())
    assert np.all(np.diff(np.diag(turned)) <= 0)
    np.testing.assert_array_equal(np.max(q, axis=0), np.max(np.abs(q), axis=0))  # signs are settled


def test_the_leading_directions_of_the_low_rank_basis_are_those_of_eigh() -> None:
    x = rows(0, 60, 30)
    rotation = found(4, x)
    assert rotation["v"].shape == (30, 4)
    _, vectors = np.linalg.eigh(x.T @ x)
    overlap = np.abs(matrix(rotation)[:, :4].T @ vectors[:, ::-1][:, :4])
    np.testing.assert_allclose(overlap, np.eye(4), atol=1e-4)


def test_many_inputs_get_a_low_rank_basis_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(basis, "DENSE", 5)
    monkeypatch.setattr(basis, "RANK", 2)
    assert found(0, rows(0))["v"].shape == (INPUTS, 2)


def test_reflections_keep_the_span_they_are_given() -> None:
    leading, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(7, 3)))
    q = matrix(reflections(leading))
    np.testing.assert_allclose(np.abs(q[:, :3].T @ leading), np.eye(3), atol=1e-12)


@pytest.mark.parametrize("rank", [0, 3])
def test_only_sums_of_moments_are_used(rank: int) -> None:
    """The same rows dealt out in another way give the same basis, and each call asks for one sum."""
    x = rows(0)
    asked = []

    def total(probe: np.ndarray | None) -> np.ndarray:
        asked.append(None if probe is None else probe.shape)
        return moments(x, probe)

    whole = find_basis(total, INPUTS, rank, 0)
    assert asked == ([(INPUTS, INPUTS)] * 4 if rank else [None])
    parts = found(rank, x[:7], x[7:31], x[31:])
    np.testing.assert_allclose(matrix(parts), matrix(whole), atol=1e-9)
    probe = np.random.default_rng(1).normal(size=(INPUTS, 2))
    np.testing.assert_allclose(moments(x, probe), x.T @ x @ probe, atol=1e-12)
    assert moments(x.astype(np.float32), None).dtype == np.float64


@pytest.mark.parametrize("rank", [0, 3])
def test_the_same_rows_and_seed_give_the_same_bits(rank: int) -> None:
    first, again = found(rank, rows(0), rows(1)), found(rank, rows(0), rows(1))
    assert all(np.array_equal(first[name], again[name]) for name in first)


MODELS: dict[str, models.Model] = {
    "blr": models.blr(INPUTS - 1),
    "classifier": models.bnn_classifier(INPUTS, 3, hidden=(4,)),
    "regressor": models.bnn_regressor(INPUTS, hidden=(3, 2)),
}


def raw_rows(model: models.Model, seed: int) -> np.ndarray:
    return rows(seed, 12)[:, : model.features].astype(np.float32)


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("name", MODELS)
def test_restored_particles_predict_on_raw_rows_what_the_rotated_do_on_rotated(name: str, rank: int) -> None:
    model = MODELS[name]
    x = model.prepare(raw_rows(model, 1))
    rotation = found(rank, x)
    rotation = unpack(pack(rotation), None)  # type: ignore[arg-type]  # from a file the arrays come in another order
    theta = np.asarray(model.init(jax.random.key(0), 5))
    restored = restore_particles(rotation, theta, model.widths, model.input_block)
    predict = jax.jit(lambda t, x: model.predict(model.split(t), x))
    there, here = predict(theta, rotate(rotation, x)), predict(restored, x)
    np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-5)
    assert restored.dtype == theta.dtype
    assert np.abs(np.asarray(there) - np.asarray(predict(theta, x))).max() > 1e-3  # the rotation does something
    np.testing.assert_array_equal(theta, model.init(jax.random.key(0), 5))  # the server's own are not touched


@pytest.mark.parametrize("name", MODELS)
def test_any_orthogonal_basis_leaves_the_posterior_as_it_is(name: str, double: Any) -> None:
    """A client that arrives late rotates by a basis its rows had no part in: nothing but the coordinates changes."""
    model = MODELS[name]
    q, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(INPUTS, INPUTS)))
    rotation, late = {"u": q}, model.prepare(rows(9, 12)[:, : model.features])
    draw = np.random.default_rng(0)
    y = draw.normal(size=12) if model.task == "regression" else draw.integers(0, 2, 12)
    theta = draw.normal(size=(4, model.dim))

    @jax.jit
    def log_posterior(theta: Any, x: Any) -> Any:
        blocks = model.split(theta)
        return model.log_prior(blocks) + model.log_likelihood(blocks, x, jnp.asarray(y), jnp.ones(12)), join(
            model.prior_score(blocks)
        )

    there, _ = log_posterior(theta, rotate(rotation, late))
    here, _ = log_posterior(restore_particles(rotation, theta, model.widths, model.input_block), late)
    double.close(there, here, factor=10)
