"""Points of theta in messages: what arrives is what was meant, on every machine, and other points are found out."""

from __future__ import annotations

import numpy as np
import pytest

from fedstein.inference.natural import GaussianSite
from fedstein.inference.points import (
    given_request,
    implausible_likelihoods,
    likelihoods_message,
    plain_request,
    points_of,
    shapes_of,
    uniforms,
)
from fedstein.inference.scale_sites import one_site
from fedstein.models import blr

MODEL = blr(2)
FIRST = [[0.8720734548204874, 0.2953653815137836], [0.4200976785072423, 0.40539224578399463]]
SITE = GaussianSite(np.array([1.0, 2.0, -1.0, 0.0]), np.diag([4.0, 9.0, 1.0, 0.0]))


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
    request = given_request(one_site(SITE), np.full((4000, 1), 1.0), 3, 1.0)
    points = points_of(MODEL, request)
    precision = np.diag(SITE.precision)[:3] + np.e
    np.testing.assert_allclose(points.mean(axis=0)[:3], SITE.eta[:3] / precision, atol=0.03)
    np.testing.assert_allclose(points.std(axis=0)[:3], precision**-0.5, rtol=0.03)
    assert (points[:, 3] == 1.0).all()
    assert {name: (a.shape, a.dtype.name) for name, a in request.items()} == shapes_of(MODEL, request)


def test_answers_for_other_points_are_refused() -> None:
    points = points_of(MODEL, given_request(one_site(SITE), np.linspace(0, 1, 50)[:, None], 3, 1.0))
    answer = likelihoods_message(points, np.append(np.full(49, -3.0), np.nan))
    assert implausible_likelihoods(answer, points) == ""
    assert answer["log_likelihood"][-1] == -np.inf
    assert answer["log_likelihood"][0] == 0
    assert "NaN" in implausible_likelihoods({**answer, "log_likelihood": np.full(50, np.nan)}, points)
    other = points_of(MODEL, given_request(one_site(SITE), np.linspace(0, 1, 50)[:, None], 4, 1.0))
    assert "other points" in implausible_likelihoods(answer, other)
    assert "other points" in implausible_likelihoods(answer, points[::-1])
