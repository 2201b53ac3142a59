"""Every draw has a key of its own, and the numbers drawn on the host are uniform."""

from __future__ import annotations

import itertools

import jax
import numpy as np
from scipy import stats

from fedstein import seeds
from fedstein.seeds import stream, uniforms


def bits(key: jax.Array) -> tuple[int, ...]:
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_no_two_draws_share_a_key() -> None:
    purposes = (seeds.START, seeds.TRAIN, seeds.REPORT, seeds.CHOOSE, seeds.POOL, seeds.ORDER)
    keys = [bits(stream(seed, p)) for seed, p in itertools.product(range(3), purposes)]
    keys += [bits(stream(s, p, r, c)) for s, p, r, c in itertools.product(range(2), purposes, range(4), range(4))]
    keys += [bits(stream(s, p, r)) for s, p, r in itertools.product(range(2), purposes, range(4))]
    assert len(set(keys)) == len(keys)


def test_a_key_is_the_same_inside_a_compiled_function() -> None:
    inside = jax.jit(lambda number, client: jax.random.key_data(stream(5, seeds.TRAIN, number, client)))
    np.testing.assert_array_equal(inside(np.int32(3), np.int32(7)), jax.random.key_data(stream(5, seeds.TRAIN, 3, 7)))


def test_host_draws_repeat_and_depend_on_everything() -> None:
    first = uniforms(1, seeds.CHOOSE, 4, count=6)
    np.testing.assert_array_equal(first, uniforms(1, seeds.CHOOSE, 4, count=6))
    for other in (
        uniforms(2, seeds.CHOOSE, 4, count=6),
        uniforms(1, seeds.POOL, 4, count=6),
        uniforms(1, seeds.CHOOSE, 5, count=6),
    ):
        assert not np.any(first == other)


def test_host_draws_are_the_same_with_the_x64_flag() -> None:
    plain = uniforms(1, seeds.CHOOSE, 4, count=6)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(uniforms(1, seeds.CHOOSE, 4, count=6), plain)


def test_host_draws_are_uniform_and_never_zero_or_one() -> None:
    draws = uniforms(0, seeds.CHOOSE, 1, count=100_000)
    assert draws.dtype == np.float64
    assert draws.min() > 0
    assert draws.max() < 1
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
    across = np.array([uniforms(seed, seeds.CHOOSE, 1, count=2) for seed in range(400)])
    assert stats.kstest(across[:, 0], "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(across.T)[0, 1]) < 0.2
