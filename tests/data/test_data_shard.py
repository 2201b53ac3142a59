"""Padding and minibatches: nothing is lost, nothing is counted twice, and the scale is right on average."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstein import models
from fedstein.data.shard import Shard, make_shard, minibatch, padded_length, shuffled, whole


@given(st.integers(1, 10**7))
def test_padding_is_at_most_a_quarter(rows: int) -> None:
    length = padded_length(rows)
    assert rows <= length <= 1.25 * rows
    assert padded_length(length) == length  # a full shard needs none


def test_lengths_are_few_and_grow_with_the_rows() -> None:
    lengths = [padded_length(rows) for rows in range(1, 1025)]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) <= 4 * 10  # four an octave
    assert padded_length(300) == padded_length(320) == 320


def shard_of(rows: int, seed: int = 0) -> Shard:
    draw = np.random.default_rng(seed)
    return make_shard(draw.normal(size=(rows, 3)), draw.integers(0, 2, rows))


def test_a_shard_keeps_its_rows_in_order() -> None:
    x, y = np.arange(27, dtype=np.float64).reshape(9, 3), np.arange(9)
    shard = make_shard(x, y)
    assert shard.x.shape == (10, 3)
    assert shard.y.shape == (10,)
    assert int(shard.rows) == 9
    np.testing.assert_array_equal(shard.x[:9], x)
    np.testing.assert_array_equal(shard.y[:9], y)
    assert shard.x.dtype == np.float32
    assert shard.y.dtype == np.int32
    assert make_shard(x, y / 2).y.dtype == np.float32


def test_a_shard_has_the_precision_of_the_flag() -> None:
    with jax.enable_x64(True):
        shard = make_shard(np.full((2, 1), 0.1), np.array([0.1, 0.2]))
        assert shard.x.dtype == shard.y.dtype == np.float64
        assert float(shard.x[0, 0]) == 0.1


def test_the_whole_shard_weighs_rows_one_and_padding_nothing() -> None:
    np.testing.assert_array_equal(whole(shard_of(9)).weights, [1] * 9 + [0])


batches = jax.jit(lambda shard, order, step: minibatch(shard, order, step, 4))
orders = jax.jit(shuffled)


@pytest.mark.parametrize("rows", [5, 9, 10, 11, 13])
def test_a_walk_covers_every_row_before_it_repeats_one(rows: int) -> None:
    shard = make_shard(np.arange(1, rows + 1, dtype=np.float32)[:, None], np.arange(1, rows + 1))
    order = orders(jax.random.key(rows), shard)
    assert sorted(np.asarray(order[:rows]).tolist()) == list(range(rows))  # padding comes last
    seen = np.concatenate([np.asarray(batches(shard, order, step).x[:, 0]) for step in range(2 * rows)])
    for start in range(0, len(seen) - rows, rows):
        assert sorted(seen[start : start + rows].tolist()) == list(range(1, rows + 1))
    batch = batches(shard, order, 3)
    np.testing.assert_array_equal(batch.x[:, 0], batch.y)  # rows and labels stay together
    np.testing.assert_allclose(batch.weights, rows / 4)


def test_the_order_is_random() -> None:
    shard = shard_of(9)
    first = [int(orders(jax.random.key(seed), shard)[0]) for seed in range(900)]
    counts = np.bincount(first, minlength=9)
    assert len(counts) == 9  # never a padded row
    assert np.sum((counts - 100) ** 2 / 100) < 26.1  # chi-square, 8 degrees of freedom, p = 0.001


def test_minibatch_gradients_add_up_to_the_full_gradient() -> None:
    """Batch after batch through all rows: the mean of the scaled gradients is exactly the gradient of the whole."""
    model, shard = models.blr(2), shard_of(12)
    theta = model.split(jnp.asarray(np.random.default_rng(1).normal(size=(3, 4)), jnp.float32))
    score = jax.jit(lambda batch: models.join(model.likelihood_score(theta, *batch)))
    full = score(whole(shard))
    order = orders(jax.random.key(0), shard)
    parts = [score(batches(shard, order, step)) for step in range(3)]  # 3 x 4 rows
    np.testing.assert_allclose(np.mean(parts, axis=0), full, rtol=1e-4, atol=1e-5)
    assert np.abs(np.asarray(parts[0]) - np.asarray(full)).max() > 0.1


def test_the_expected_minibatch_gradient_is_the_full_gradient() -> None:
    """Over keys, with a size that does not divide the rows: no row is favoured."""
    model, shard = models.blr(2), shard_of(9)
    theta = model.split(jnp.asarray(np.random.default_rng(1).normal(size=(2, 4)), jnp.float32))

    @jax.jit
    @jax.vmap
    def draw(key: jax.Array) -> jax.Array:
        return models.join(model.likelihood_score(theta, *minibatch(shard, shuffled(key, shard), 2, 4)))

    draws = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)), np.float64)
    full = np.asarray(models.join(model.likelihood_score(theta, *whole(shard))))
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - full) <= 4 * error + 1e-6)
