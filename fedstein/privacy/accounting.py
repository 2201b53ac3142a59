"""Privacy accounting: the total cost of Gaussian releases, and the noise that a planned run needs.

A release of a sum with sensitivity D and Gaussian noise of standard deviation s D is mu-GDP with mu = 1 / s (Dong, Roth
and Su 2022). Releases compose exactly, even if each query depends on earlier answers: mu^2 = sum_i mu_i^2. For one mu,
the smallest delta at an epsilon is (Balle and Wang 2018)

    delta(epsilon) = Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu).

The ledger of a client adds up mu^2 and compares the sum with the mu^2 of its budget. This stays valid if the noise of
later releases is chosen after earlier answers (Koskela, Tobaben and Honkela 2022: Gaussian privacy filters).
``cross_check`` computes the same composition with dp-accounting, by privacy loss distributions and by Renyi
divergences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedstein.errors import InputError
from fedstein.privacy.settings import PrivacySettings

LEAST, MOST = 1e-6, 1e4  # the range of mu that is searched


def delta_of(mu: float, epsilon: float) -> float:
    """The smallest delta with which a mu-GDP mechanism is (epsilon, delta)-differentially private."""
    from scipy.special import log_ndtr, ndtr  # imported here: it would take a third of the time of importing Fedstein

    if mu <= 0:
        return 0.0
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon with which a mu-GDP mechanism is (epsilon, delta)-differentially private."""
    from scipy.optimize import brentq

    if mu <= 0 or delta_of(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_of(mu, high) > delta:
        high *= 2
    return float(brentq(lambda epsilon: delta_of(mu, epsilon) - delta, 0.0, high, xtol=1e-12))


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta)-differential privacy."""
    from scipy.optimize import brentq

    return float(brentq(lambda mu: delta_of(mu, epsilon) - delta, LEAST, MOST, xtol=1e-14, rtol=1e-13))


class Plan(NamedTuple):
    """Noise multipliers of a whole run: the noise's standard deviation over the sensitivity."""

    gradient: float  # the multiplier of the gradient at every visit
    moments: float  # the multiplier of the moments, which are released once, or at every visit if sums are secure
    visits: int
    often: bool = False  # whether moments are released at every visit

    @property
    def multipliers(self) -> list[float]:
        """The noise multipliers of all releases of a client."""
        return [*[self.moments] * (self.visits if self.often else 1), *[self.gradient] * self.visits]


def plan_of(settings: PrivacySettings) -> Plan:
    """Share a client's budget out over its planned releases.

    Args:
        settings: The settings of ``[privacy]``.

    Returns:
        The multipliers: mu^2 is split between gradients and moments, and evenly over visits. If sums are secure,
        moments are released at every visit, so that every sum has the moments of its own clients.
    """
    mu = mu_of(settings.epsilon, settings.delta)
    gradient = 1 / (mu * math.sqrt(settings.split / settings.visits))
    often = settings.sums == "secure"
    moments = 1 / (mu * math.sqrt((1 - settings.split) / (settings.visits if often else 1)))
    return Plan(gradient, moments, settings.visits, often)


def spent_mu(multipliers: Sequence[float]) -> float:
    """The mu of several releases together."""
    return math.sqrt(sum(1 / multiplier**2 for multiplier in multipliers))


class CrossCheck(NamedTuple):
    """The epsilon of the same releases by three accountants."""

    gaussian: float
    pld: float
    rdp: float


def cross_check(multipliers: Sequence[float], delta: float) -> CrossCheck:
    """Compute epsilon by the closed form and by the two accountants of dp-accounting.

    Args:
        multipliers: The noise multipliers of all releases.
        delta: delta.

    Returns:
        The three values. The privacy loss distribution agrees with the closed form up to its grid; Renyi's value is an
        upper bound.

    Raises:
        InputError: dp-accounting is not installed.
    """
    try:
        import dp_accounting
        from dp_accounting import pld, rdp
    except ImportError:
        raise InputError(
            "the audit of a private run needs dp-accounting, which is not installed: pip install 'fedstein[privacy]'"
        ) from None
    events = [dp_accounting.GaussianDpEvent(multiplier) for multiplier in multipliers]
    by_pld, by_rdp = pld.PLDAccountant(), rdp.RdpAccountant()
    for event in events:
        by_pld.compose(event)
        by_rdp.compose(event)
    exact = epsilon_of(spent_mu(multipliers), delta)
    return CrossCheck(exact, float(by_pld.get_epsilon(delta)), float(by_rdp.get_epsilon(delta)))
