"""Priors of the weights' scale: densities with Jacobian against SciPy, draws, and keys that belong to one prior."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from fedstein.inference.natural import GaussianSite
from fedstein.inference.scale_sites import has_scale, moments, one_site, tabulate
from fedstein.models import blr
from fedstein.models.blr import BlrSettings
from fedstein.models.scale_priors import SCALE_PRIORS, ScalePrior

SCIPY = {"half_normal": stats.halfnorm, "half_cauchy": stats.halfcauchy}


@pytest.mark.parametrize("kind", SCALE_PRIORS)
def test_the_density_of_log_xi_is_that_of_the_scale_with_its_jacobian(kind: str) -> None:
    h = np.linspace(-6, 6, 25)
    if kind == "gamma":
        prior, expected = ScalePrior(kind, 2.0, 0.5), stats.gamma(2.0, scale=2.0).logpdf(np.exp(h)) + h
    else:
        sigma = np.exp(-h / 2)  # d sigma / d h = -sigma / 2
        prior, expected = ScalePrior(kind, scale=1.7), SCIPY[kind](scale=1.7).logpdf(sigma) + np.log(sigma / 2)
    found = np.asarray(prior.log_density(h))
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=1e-4)


@pytest.mark.parametrize("kind", sorted(SCIPY))
def test_particles_start_from_the_prior(kind: str) -> None:
    xi = np.asarray(ScalePrior(kind, scale=2.0).draw(jax.random.key(0), 4000))[:, 0]
    assert stats.kstest(xi**-0.5, SCIPY[kind](scale=2.0).cdf).pvalue > 0.01
    assert np.median(ScalePrior(kind).draw(jax.random.key(0), 400, wide=True)) < 0.05


def test_sites_and_grid_follow_the_prior() -> None:
    """Without rows the grid over log xi gives the prior back: E[log sigma] of a half-Cauchy(1) is 0."""
    model = blr(1, prior="half_cauchy")
    assert has_scale(model)
    sites = one_site(GaussianSite(np.zeros(3), np.zeros((3, 3))))
    mean, covariance = moments(model, sites, tabulate(model, sites))
    assert mean[-1] == pytest.approx(0, abs=0.02)
    assert covariance[-1, -1] == pytest.approx(np.pi**2, rel=0.02)  # Var[-2 log sigma] = 4 (pi / 2)^2


def test_a_key_of_another_prior_is_refused() -> None:
    with pytest.raises(ValidationError, match="prior_scale is for"):
        BlrSettings(prior_scale=2.0)
    with pytest.raises(ValidationError, match="prior_shape and prior_rate are for"):
        BlrSettings(prior="half_normal", prior_rate=1.0)
    with pytest.raises(ValueError, match="expected one of"):
        blr(2, prior="flat")
