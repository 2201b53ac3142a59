"""Attacks succeed without protection, fail with it, and catch a mechanism that adds too little noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from fedstein.privacy.accounting import mu_of
from fedstein.report.attack_figures import Curve, draw_images, draw_rates
from fedstein.studies.attacks import bounds, inversion, membership

EPSILON, DELTA = 1.0, 1e-5


def test_rates_and_area_are_those_of_known_scores() -> None:
    found = bounds.rates(np.array([0.0, 1.0, 2.0, 3.0]), np.array([2.0, 4.0, 5.0, 5.0]))
    assert bounds.true_rate_at(found, 0.0) == 0.75
    assert bounds.area(found) == pytest.approx((16 - 1 - 0.5) / 16)  # of 16 pairs one is wrong and one is level
    same = np.ones(5)
    assert bounds.area(bounds.rates(same, same)) == 0.5


@pytest.mark.parametrize(("hits", "trials"), [(0, 20), (3, 20), (20, 20)])
def test_an_interval_is_clopper_and_pearsons(hits: int, trials: int) -> None:
    low, high = bounds.interval(hits, trials, 0.9)
    if hits:
        assert binom.sf(hits - 1, trials, low) == pytest.approx(0.05)
    if hits < trials:
        assert binom.cdf(hits, trials, high) == pytest.approx(0.05)
    assert (low == 0.0, high == 1.0) == (hits == 0, hits == trials)


def test_lower_bounds_are_near_the_truth_for_gaussian_scores_and_rarely_above_it() -> None:
    random, mu = np.random.default_rng(0), mu_of(EPSILON, DELTA)
    above, proved = 0, []
    for _ in range(20):
        found = bounds.lower_bounds(random.standard_normal(4000), mu + random.standard_normal(4000), DELTA)
        above += (found.plain > EPSILON) + (found.gaussian > EPSILON)
        proved.append(found.mu)
    assert np.mean(proved) > 0.4 * mu
    assert above <= 2  # 2 of 40 are expected at most
    assert bounds.allowed_area(mu) == pytest.approx(float(ndtr(mu / 2**0.5)))
    assert bounds.allowed(mu, np.array([0.5]))[0] == pytest.approx(float(ndtr(mu)))


@pytest.mark.slow
def test_too_little_noise_is_caught_and_the_right_noise_passes() -> None:
    """At epsilon 4, where a few hundred plays tell mu = 0.9 from the 1.9 of half the noise."""
    row, others = membership.canary(0.999)
    promised = mu_of(4.0, DELTA)
    right, half = (
        bounds.lower_bounds(*membership.guess_knowing_all_rows(row, others, 4.0, 600, 3, noise), DELTA)
        for noise in (1.0, 0.5)
    )
    assert max(right.plain, right.gaussian) <= 4.0
    assert right.mu > promised / 3  # the guesser proves something of the right mechanism, so the check has force
    assert half.gaussian > 4.0, "half the noise must not pass"
    assert half.mu > 1.3 * promised


@pytest.mark.slow
def test_a_rare_row_is_found_out_without_protection_and_not_with_it() -> None:
    row, others = membership.canary(0.999)
    areas = {
        name: bounds.area(bounds.rates(*membership.guess_knowing_the_population(play, row, others, 240, 1)))
        for name, play in {
            "HIP report": membership.unprotected("HIP report", row),
            "private": membership.protected(row, EPSILON),
        }.items()
    }
    assert areas["HIP report"] > 0.9
    assert areas["private"] < 0.65  # 0.575 is allowed; the rest is for 120 plays


def test_one_row_is_read_off_a_hip_report_and_not_off_private_releases() -> None:
    data = inversion.digits()
    x, y = data.x[7:8], data.y[7:8]
    found = inversion.one_row(inversion.hip_reports(x, y)(inversion.honest_particles()))
    np.testing.assert_allclose(found, x[0], atol=1e-5)
    assert inversion.errors(x, inversion.from_private(x, y, EPSILON)[None])[0] > 0.8
    assert inversion.errors(x, np.empty((0, 64)))[0] == 1.0


@pytest.mark.slow
def test_a_server_that_chooses_particles_takes_a_client_apart() -> None:
    data = inversion.digits()
    x, y = data.x[:40], data.y[:40]
    found = inversion.isolate(inversion.hip_reports(x, y), 12)
    assert np.mean(inversion.errors(x, found) < inversion.RECOVERED) > 0.9
    few = inversion.few_rows(inversion.hip_reports(x[:2], y[:2]), 2)
    assert np.all(inversion.errors(x[:2], few) < inversion.RECOVERED)


def test_figures_are_drawn() -> None:
    line = np.array([1e-3, 0.1, 1.0])
    curves = {"epsilon 1": Curve(line, line), "allowed by epsilon 1": Curve(line, line, True)}
    assert draw_rates([("a", curves)])["png"][:4] == b"\x89PNG"
    assert draw_images([("a", np.zeros((2, 64)))])["png"][:4] == b"\x89PNG"
