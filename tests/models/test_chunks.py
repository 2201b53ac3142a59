"""Sums over pieces of the rows equal the sums over all rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.models.chunks import sum_over_chunks


@pytest.mark.parametrize("rows", [*range(1, 18), 20, 24, 28, 31, 33, 37, 40, 48])
def test_in_pieces_is_the_sum_over_all_rows_whatever_their_number(rows: int) -> None:
    """Lengths of padded shards, and any other: no piece is longer than asked, nothing is lost or counted twice."""
    draw = np.random.default_rng(rows)
    x, y = jnp.asarray(draw.normal(size=(rows, 2)), jnp.float32), jnp.arange(rows)
    weights = jnp.asarray(draw.uniform(0.5, 1, rows), jnp.float32)
    lengths = []

    def piece(number: jax.Array, x: jax.Array, y: jax.Array, w: jax.Array) -> dict[str, jax.Array]:
        lengths.append(x.shape[0])
        pieces = jnp.zeros(64).at[number].add(1.0)
        return {"moment": (w[:, None] * x).T @ x, "labels": w @ y, "rows": jnp.sum(w > 0), "numbers": pieces}

    got = sum_over_chunks(piece, x, y, weights, size=4)
    assert max(lengths) <= 4
    np.testing.assert_allclose(got["moment"], (weights[:, None] * x).T @ x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["labels"], weights @ y, rtol=1e-5)
    assert int(got["rows"]) == rows
    numbers = np.asarray(got["numbers"])
    assert set(numbers[: int(numbers.sum())]) == {1.0}  # 0, 1, 2, ...: every piece draws its own labels
