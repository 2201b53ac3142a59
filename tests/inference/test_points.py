"""Points of theta in messages: what arrives is what was meant, on every machine, and other points are found out."""

from __future__ import annotations

import numpy as np
import pytest

from fedstein.inference.cells import Cells
from fedstein.inference.natural import GaussianSite
from fedstein.inference.points import (
    LARGEST,
    given_request,
    implausible_likelihoods,
    likelihoods_message,
    log_density_of,
    moved_of,
    plain_request,
    points_of,
    read_likelihoods,
    shapes_of,
    sums_for,
    sums_of,
    uniforms,
)
from fedstein.inference.scale_sites import log_density_given, one_site
from fedstein.models import blr

MODEL = blr(2)
FIRST = [[0.8720734548204874, 0.2953653815137836], [0.4200976785072423, 0.40539224578399463]]
SITE = GaussianSite(np.array([1.0, 2.0, -1.0, 0.0]), np.diag([4.0, 9.0, 1.0, 0.0]))
LOG_XI = Cells(np.array([0.0]), np.array([[0.1]]), np.array([11]), np.zeros(11))


def some_request(seed: int = 3, batch: int = 0) -> dict[str, np.ndarray]:
    return given_request(one_site(SITE), LOG_XI, np.arange(50) // 5, seed, batch, 1.0)


def test_plain_points_travel_in_half_precision() -> None:
    rng = np.random.default_rng(5)
    theta = rng.standard_normal((200, 3)) * [1, 1e-3, 50] + [5, 1, 0]
    request = plain_request(theta, theta.mean(axis=0), np.linalg.cholesky(np.cov(theta, rowvar=False)))
    assert request["standard"].dtype == np.float16
    np.testing.assert_allclose((points_of(MODEL, request) - theta) / theta.std(axis=0), 0, atol=2e-3)


def test_uniform_numbers_are_the_same_for_ever() -> None:
    np.testing.assert_allclose(uniforms(7, 0, 2, 2), FIRST, rtol=1e-12)
    many = uniforms(7, 1, 5000, 2)
    assert many.mean() == pytest.approx(0.5, abs=0.01)
    assert np.corrcoef(many.T)[0, 1] == pytest.approx(0, abs=0.05)


def test_points_given_h_have_the_conditional_moments() -> None:
    """At log xi = 1, w_i has the precision Lambda_ii + e and the mean eta_i / (Lambda_ii + e)."""
    narrow = LOG_XI._replace(spans=np.array([[1e-9]]), origin=np.array([1.0]))
    request = given_request(one_site(SITE), narrow, np.full(4000, 4), 3, 0, 1.0)
    points = points_of(MODEL, request)
    precision = np.diag(SITE.precision)[:3] + np.e
    np.testing.assert_allclose(points.mean(axis=0)[:3], SITE.eta[:3] / precision, atol=0.03)
    np.testing.assert_allclose(points.std(axis=0)[:3], precision**-0.5, rtol=0.03)
    np.testing.assert_allclose(points[:, 3], 1.0, atol=1e-8)
    assert {name: (a.shape, a.dtype.name) for name, a in request.items()} == shapes_of(MODEL, request)


def test_points_come_with_their_density() -> None:
    request = given_request(one_site(SITE), LOG_XI, np.arange(50) // 5, 3, 0, 1.2)
    away = log_density_of(MODEL, request) - log_density_given(MODEL, one_site(SITE), points_of(MODEL, request), 1.2)
    np.testing.assert_allclose(away, away[0], atol=1e-9)


def test_h_is_in_the_cells_that_were_chosen_and_batches_differ() -> None:
    sides, spans = np.array([3, 4]), np.array([[0.5, 0.1], [0.0, 2.0]])
    grid = Cells(np.array([-1.0, 5.0]), spans, sides, np.zeros(12))
    chosen = np.repeat([1, 7, 11], 40)
    found = moved_of(given_request(one_site(SITE), grid, chosen, 3, 0, 1.0))
    places = (found - grid.origin) @ np.linalg.inv(spans)
    np.testing.assert_array_equal(np.rint(places), np.repeat([[0, 1], [1, 3], [2, 3]], 40, axis=0))
    assert np.abs(places - np.rint(places)).max() == pytest.approx(0.5, abs=0.05)
    other = moved_of(given_request(one_site(SITE), grid, chosen, 3, 1, 1.0))
    assert (other != found).all()


def test_cells_are_chosen_by_their_probability() -> None:
    grid = LOG_XI._replace(log_density=np.log(np.arange(1.0, 12.0)))
    counts = np.bincount(grid.chosen((np.arange(6600) + 0.5) / 6600), minlength=11)
    np.testing.assert_allclose(counts, 100 * np.arange(1.0, 12.0), atol=1)
    assert (np.bincount(grid.tempered(1e9).chosen((np.arange(1100) + 0.5) / 1100)) == 100).all()


@pytest.mark.parametrize(
    "change",
    [
        {"cells": np.full(10, 11, np.uint16)},
        {"counts": np.full(10, 65_535, np.uint16)},
        {"sides": np.array([2**40])},
        {"sides": np.array([0])},
        {"counts": np.ones(3, np.uint16)},
    ],
    ids=["outside the grid", "too many points", "too many cells", "no cells", "counts of others"],
)
def test_cells_that_are_none_have_no_right_shape(change: dict[str, np.ndarray]) -> None:
    request = {**some_request(), **change}
    assert shapes_of(MODEL, request)["cells"][0] != request["cells"].shape
    assert LARGEST < 2**16  # counts travel in 16 bits


def test_log_likelihoods_travel_as_half_precision_differences() -> None:
    points = points_of(MODEL, some_request())
    values = -5000.0 + 12.0 * np.random.default_rng(0).standard_normal(50)
    answer = likelihoods_message(sums_of(points), values)
    assert answer["log_likelihood"].dtype == np.float16
    np.testing.assert_allclose(read_likelihoods(answer), values, atol=0.02)
    huge = read_likelihoods(likelihoods_message(sums_of(points), np.append(values[:-2], [1e9, -1e9])))
    assert np.isneginf(huge[-1])
    assert 59_000 < huge[-2] < np.inf
    assert implausible_likelihoods(answer, points) == ""


def test_sums_are_those_of_the_points_that_are_meant() -> None:
    for request in (some_request(), plain_request(np.eye(4), np.zeros(4), np.eye(4))):
        np.testing.assert_array_equal(sums_for(MODEL, request), sums_of(points_of(MODEL, request)))


def test_answers_for_other_points_are_refused() -> None:
    points = points_of(MODEL, some_request())
    answer = likelihoods_message(sums_of(points), np.append(np.full(49, -3.0), np.nan))
    assert implausible_likelihoods(answer, points) == ""
    assert answer["log_likelihood"][-1] == -np.inf
    assert read_likelihoods(answer)[0] == -3
    assert "NaN" in implausible_likelihoods({**answer, "log_likelihood": np.full(50, np.nan)}, points)
    assert "NaN" in implausible_likelihoods({**answer, "median": np.array([np.nan])}, points)
    assert "other points" in implausible_likelihoods(answer, points_of(MODEL, some_request(seed=4)))
    assert "other points" in implausible_likelihoods(answer, points[::-1])
