"""Random projections of scores: inner products and HIPs are right on average, with the spread that theory gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fedstein.stein import mean_hips, project, projected_hips, projection_key
from fedstein.stein.discrepancy import frame_of
from fedstein.stein.kernels import centred

N, DIM, SIZE, TIMES = 5, 60, 12, 4000


def arrays(count: int) -> list[jax.Array]:
    drawn = np.random.default_rng(3).normal(size=(count, N, DIM)).astype(np.float32)
    return [jnp.asarray(each) for each in drawn]


def test_inner_products_are_right_on_average_and_spread_as_the_formula_says():
    x, y = (each[0] for each in arrays(2))
    keys = jax.random.split(jax.random.key(1), TIMES)
    found = np.asarray(jax.vmap(lambda key: project(key, jnp.stack([x, y]), SIZE).prod(axis=0).sum())(keys))
    exact = float(x @ y)
    bound = (float(x @ x) * float(y @ y) + exact**2) / SIZE
    assert abs(found.mean() - exact) < 4 * np.sqrt(bound / TIMES)
    assert found.var() < 1.1 * bound


def test_hips_are_right_on_average_over_projections():
    """The estimate with each of many keys, by its definition; its mean is the HIP of the whole scores."""
    particles, *scores = arrays(4)
    exact = np.asarray(mean_hips(particles, scores))
    frame = frame_of(centred(particles)[0])

    @jax.vmap
    def estimate(key: jax.Array) -> jax.Array:
        sent = [project(key, each, SIZE) for each in scores]
        mean, repulsion = sum(sent) / len(sent), project(key, frame.repulsion, SIZE)
        inner = [jnp.sum(each * (frame.kernel @ mean + repulsion)) for each in sent]
        return (jnp.stack(inner) + jnp.sum(mean * repulsion) + frame.trace) / N**2

    found = np.asarray(estimate(jax.random.split(jax.random.key(2), TIMES)))
    assert (np.abs(found.mean(axis=0) - exact) < 4.5 * found.std(axis=0) / np.sqrt(TIMES)).all()
    key = projection_key(particles)
    np.testing.assert_allclose(
        projected_hips(particles, [project(key, each, SIZE) for each in scores]), estimate(key[None])[0], rtol=1e-4
    )


def test_the_projection_is_another_one_in_every_round_and_the_same_at_both_ends():
    particles, scores = arrays(2)
    same, other = projection_key(particles), projection_key(particles + 1e-3)
    np.testing.assert_array_equal(project(same, scores, SIZE), project(projection_key(particles), scores, SIZE))
    assert not np.array_equal(project(same, scores, SIZE), project(other, scores, SIZE))
