"""The accountant against closed forms, another library, and a likelihood-ratio test that catches too little noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, norm

from fedstein.privacy import accounting
from fedstein.privacy.noise import add_noise
from fedstein.privacy.settings import PrivacySettings


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (1.0, 1e-5), (8.0, 1e-5)])
def test_mu_and_epsilon_are_inverse_and_meet_the_definition(epsilon: float, delta: float) -> None:
    mu = accounting.mu_of(epsilon, delta)
    assert accounting.epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-9)
    # delta is the largest P(S) - exp(epsilon) Q(S) for N(mu, 1) against N(0, 1); S is a half-line
    cut = epsilon / mu + mu / 2
    assert norm.sf(cut - mu) - math.exp(epsilon) * norm.sf(cut) == pytest.approx(delta, rel=1e-7)


def test_a_plan_spends_exactly_its_budget_and_two_other_accountants_agree() -> None:
    settings = PrivacySettings(kind="record", epsilon=1.0, delta=1e-5, visits=3, split=0.6)
    plan = accounting.plan_of(settings)
    assert len(plan.multipliers) == 4
    found = accounting.cross_check(plan.multipliers, 1e-5)
    assert found.gaussian == pytest.approx(1.0, rel=1e-9)
    assert found.pld == pytest.approx(1.0, rel=2e-3)
    assert 1.0 < found.rdp < 1.25  # an upper bound
    gradients = accounting.spent_mu([plan.gradient] * 3)
    assert gradients**2 / accounting.mu_of(1.0, 1e-5) ** 2 == pytest.approx(0.6)


def lower_bound(multiplier: float, delta: float, trials: int = 20_000) -> float:
    """An epsilon that a mechanism certainly exceeds (99% each): from a test between neighbours, Clopper and Pearson."""
    secret = bytes(32)
    with_row = add_noise(np.ones(trials), multiplier, secret, "with")
    without = add_noise(np.zeros(trials), multiplier, secret, "without")
    best = 0.0
    for cut in np.quantile(without, [0.5, 0.8, 0.9, 0.95, 0.99, 0.999]):
        hits, alarms = int((with_row > cut).sum()), int((without > cut).sum())
        least = beta.ppf(0.01, hits, trials - hits + 1)
        most = beta.ppf(0.99, alarms + 1, trials - alarms)
        if least > delta:
            best = max(best, math.log((least - delta) / most))
    return best


def test_an_empirical_attack_stays_below_epsilon_and_catches_too_little_noise() -> None:
    multiplier = 1 / accounting.mu_of(1.0, 1e-5)
    assert lower_bound(multiplier, 1e-5) <= 1.0
    assert lower_bound(multiplier / 6, 1e-5) > 1.0  # a sixth of the noise is found out
