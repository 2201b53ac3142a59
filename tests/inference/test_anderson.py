"""Combining answers: exact for linear maps in as many steps as they have directions, safe where they say nothing."""

from __future__ import annotations

import numpy as np

from fedstein.inference.anderson import combined, mixing, positive
from fedstein.inference.natural import GaussianSite

MEAN, COVARIANCE = np.zeros(2), np.diag([1.0, 4.0])


def test_a_linear_map_comes_to_rest_after_two_answers() -> None:
    """F(t) = goal + r (t - goal): a plain step leaves the share r of the way, the combination of two nothing."""
    goal = GaussianSite(np.array([1.0, -2.0]), np.eye(2))

    def answer(site: GaussianSite) -> GaussianSite:
        return GaussianSite(*(g + 0.9 * (t - g) for t, g in zip(site, goal, strict=True)))

    first = GaussianSite(np.zeros(2), np.zeros((2, 2)))
    sites = [first, answer(first)]
    answers = [answer(site) for site in sites]
    residuals = [GaussianSite(a.eta - s.eta, a.precision - s.precision) for a, s in zip(answers, sites, strict=True)]
    shares = mixing(residuals, MEAN, COVARIANCE)
    assert shares is not None
    np.testing.assert_allclose(shares.sum(), 1)
    found = combined(shares, answers)
    np.testing.assert_allclose(found.eta, goal.eta, atol=1e-4)
    np.testing.assert_allclose(found.precision, goal.precision, atol=1e-4)


def test_answers_that_are_too_alike_are_not_combined() -> None:
    one = GaussianSite(np.ones(2), np.eye(2))
    almost = GaussianSite(np.ones(2) * (1 - 1e-4), np.eye(2) * (1 - 1e-4))
    assert mixing([one, almost], MEAN, COVARIANCE) is None
    nothing = GaussianSite(np.zeros(2), np.zeros((2, 2)))
    assert mixing([nothing], MEAN, COVARIANCE) is None
    assert not positive(GaussianSite(np.zeros(2), np.diag([1.0, -0.1])))
    assert positive(GaussianSite(np.zeros(2), np.diag([1.0, 0.0])))
