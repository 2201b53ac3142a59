"""Standardisation found by sums over clients: the same as with all rows in one place."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstein.data.dataset import standardisation
from fedstein.data.encoding import Coding, Encoding
from fedstein.data.scaling import (
    Arrays,
    Scaling,
    add,
    first_sums,
    mean_from,
    pooled,
    scale_from,
    scale_rows,
    second_sums,
    sum_shapes,
    unscaled,
)
from fedstein.errors import FedsteinError, InputError

Rows = tuple[np.ndarray, np.ndarray | None]


def federated(clients: list[Rows]) -> Scaling:
    total1 = add(first_sums(x, y) for x, y in clients)
    mean = mean_from(total1)
    return scale_from(total1, add(second_sums(x, y, mean) for x, y in clients))


def split(x: np.ndarray, y: np.ndarray | None, owner: np.ndarray) -> list[Rows]:
    return [(x[owner == k], None if y is None else y[owner == k]) for k in np.unique(owner)]


def close(got: Scaling, expected: Scaling, rtol: float = 1e-12) -> None:
    """Scales to rtol of themselves; means to rtol of themselves or of the spread, whichever is more."""
    np.testing.assert_allclose(got.scale, expected.scale, rtol=rtol, atol=0)
    np.testing.assert_allclose(got.target_scale, expected.target_scale, rtol=rtol, atol=0)
    assert np.all(np.abs(got.mean - expected.mean) <= rtol * (np.abs(expected.mean) + expected.scale))
    assert abs(got.target_mean - expected.target_mean) <= rtol * (abs(expected.target_mean) + expected.target_scale)


def columns(generator: np.random.Generator, rows: int) -> np.ndarray:
    """One column of every kind that is treated differently, or hard to compute with."""
    noise = generator.normal(size=rows)
    return np.column_stack(
        [
            noise,
            1e9 + 10 * noise,
            -1e9 + 30 * generator.uniform(size=rows),
            1e30 * generator.uniform(-1, 1, size=rows),
            1e-12 * noise,
            np.full(rows, 0.1),
            np.full(rows, -1.7e25),
            generator.integers(0, 2, size=rows),
            np.zeros(rows),
            np.ones(rows),
            generator.integers(0, 3, size=rows),
            np.where(np.arange(rows) == 0, 0.5, generator.integers(0, 2, size=rows)),
        ]
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 200),
    clients=st.integers(1, 20),
    offset=st.sampled_from([0.0, 5.0, 1e9]),
    regression=st.booleans(),
)
def test_any_split_gives_what_the_pooled_rows_give(
    seed: int, rows: int, clients: int, offset: float, regression: bool
) -> None:
    generator = np.random.default_rng(seed)
    x = columns(generator, rows)
    y = offset + 10 * generator.normal(size=rows) if regression else None
    parts = split(x, y, generator.integers(0, clients, size=rows))
    got = federated(parts)
    mean, scale = standardisation(x)
    target = (0.0, 1.0) if y is None else (float(y.mean()), float(y.std()) if rows > 1 else 1.0)
    expected = Scaling(mean, scale, *target)
    close(got, expected)
    close(pooled(x, y), expected, rtol=0)
    binary = [7, 8, 9]
    assert got.mean[binary].tolist() == [0] * 3
    assert got.scale[[5, 6, *binary]].tolist() == [1] * 5
    assert got.mean[[5, 6]].tolist() == [0.1, -1.7e25]  # exact, or the column would not become 0
    order = generator.permutation(len(parts))
    close(federated([parts[k] for k in order]), got)


@given(st.lists(st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda v: round(v, 3)), min_size=1, max_size=30))
def test_any_values_give_what_the_pooled_values_give(values: list[float]) -> None:
    x = np.array(values)[:, None]
    got = federated([(row[None], row) for row in x])
    close(got, pooled(x, x[:, 0]))


@pytest.mark.parametrize("value", [0.1, 3.3, 1e9 + 0.1, -7e29, 1e-300])
@pytest.mark.parametrize("clients", [1, 3, 300])
def test_a_constant_is_found_and_one_last_bit_is_not_taken_for_one(value: float, clients: int) -> None:
    rows = 20_000
    owner = np.arange(rows) % clients
    x = np.full((rows, 1), value)
    got = federated(split(x, x[:, 0], owner))
    assert (got.mean[0], got.scale[0], got.target_mean, got.target_scale) == (value, 1, value, 1)
    if abs(value) < 1e-200:
        return  # the square of its last bit is zero in float64, and its spread nothing
    x[7] = np.nextafter(value, np.inf)
    got, bit = federated(split(x, None, owner)), float(np.abs(x[7, 0] - value))
    np.testing.assert_allclose(got.scale[0], bit * np.sqrt((rows - 1) / rows**2), rtol=1e-6)


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(2, 200),
    clients=st.integers(1, 20),
    noise=st.sampled_from([1e-6, 1e-3, 1.0, 1e3]),
)
def test_noise_far_below_the_offset_keeps_its_digits(seed: int, rows: int, clients: int, noise: float) -> None:
    """Here the pooled two-pass formula itself loses digits, so that the comparison is with exact fractions."""
    generator = np.random.default_rng(seed)
    x = 1e9 + noise * generator.normal(size=rows)
    exact = [Fraction(value) for value in x.tolist()]
    mean = sum(exact) / rows
    variance = sum((value - mean) ** 2 for value in exact) / rows
    got = federated(split(x[:, None], x, generator.integers(0, clients, size=rows)))
    assert got.mean[0] == got.target_mean == float(mean)
    scale = np.sqrt(float(variance)) or 1.0  # the least noise may leave equal values
    np.testing.assert_allclose([got.scale[0], got.target_scale], scale, rtol=1e-12)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_shapes_are_those_of_the_sums(task: str) -> None:
    x = np.arange(12.0).reshape(4, 3)
    y = x[:, 0] if task == "regression" else None
    first = first_sums(x, y)
    second = second_sums(x, y, mean_from(first))
    for sums, shapes in zip((first, second), sum_shapes(3, task), strict=True):
        for arrays in (sums, add([sums, sums])):
            assert {name: (array.shape, array.dtype.name) for name, array in arrays.items()} == shapes
            assert all(isinstance(array, np.ndarray) for array in arrays.values())
    assert all(isinstance(array, np.ndarray) for array in mean_from(first).values())


def test_twice_the_rows_are_twice_the_sums() -> None:
    """Nothing but sums over rows leaves a node: what is sent for two files is what is sent for both in one."""
    x, y = columns(np.random.default_rng(1), 50)[:, :3], np.arange(50.0)

    def same(one: Arrays, two: Arrays) -> None:
        for name, array in one.items():
            np.testing.assert_allclose(array, two[name], rtol=1e-12, atol=1e-5)

    first = first_sums(x, y)
    same(first, add([first_sums(x[:9], y[:9]), first_sums(x[9:], y[9:])]))
    mean = mean_from(first)
    same(second_sums(x, y, mean), add([second_sums(x[:9], y[:9], mean), second_sums(x[9:], y[9:], mean)]))


@given(rows=st.integers(10**6, 10**10), bits=st.integers(1, 1000))
def test_a_constant_is_found_among_very_many_rows(rows: int, bits: int) -> None:
    """The mean is some last bits off; the sums of so many distances from it are themselves rounded."""
    count, bit = np.array(float(rows)), np.array([2.0**-52])
    total = {"count": count, "sum": (1 - bits * bit) * count, "other": count.reshape(1)}
    far = bits * bit * (1 + bit)  # a sum's own rounding
    got = scale_from(total, {"count": count, "distance": far * count, "square": far**2 * count * (1 + 3 * bit)})
    assert got.scale[0] == 1


def test_a_node_lost_between_the_passes_is_noticed() -> None:
    x = np.arange(12.0).reshape(6, 2)
    total = add([first_sums(x[:2], None), first_sums(x[2:], None)])
    with pytest.raises(FedsteinError, match="over the same rows, got 6 and 4; leave a node that was lost out of both"):
        scale_from(total, second_sums(x[2:], None, mean_from(total)))


def test_no_rows_at_all() -> None:
    with pytest.raises(InputError, match="expected rows to scale with, got 0"):
        mean_from(add([]))


def test_rows_as_a_model_sees_them() -> None:
    x, y = np.array([[1.0, 10.0], [3.0, 30.0]]), np.array([2.0, 6.0])
    got_x, got_y = scale_rows(x, y, federated([(x, y)]))
    assert got_x.tolist() == [[-1, -1], [1, 1]]
    assert got_y.tolist() == [-1, 1]
    assert (got_x.dtype, got_y.dtype) == (np.float32, np.float32)
    classes = np.array([0, 1], np.int32)
    raw_x, raw_y = scale_rows(x, classes, unscaled(2))
    assert raw_x.tolist() == x.tolist()
    assert raw_y is classes
    assert scale_rows(x, y, unscaled(2))[1].tolist() == y.tolist()


@pytest.mark.parametrize("fill", [0.25, 2.0])
def test_a_column_of_0_and_1_with_gaps_is_left_alone(fill: float) -> None:
    """The mean that replaces missing values of a 0/1 column does not make it a column of measurements."""
    x = np.array([[0.0, 3.0], [1.0, 4.0], [fill, 5.0], [0.0, 6.0], [0.0, 7.0]])
    fills = Encoding((Coding("smoker", None, fill), Coding("age"))).binary_fills
    total = add(first_sums(part, None, fills) for part in (x[:2], x[2:]))
    parts = add(second_sums(part, None, mean_from(total)) for part in (x[:2], x[2:]))
    for found in (pooled(x, None, fills), scale_from(total, parts)):
        assert (found.mean[0] == 0 and found.scale[0] == 1) == (fill < 1)  # 2 is a value of its own
        assert found.mean[1] == pytest.approx(5)
