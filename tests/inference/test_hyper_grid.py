"""The grid over two or three parameters: moments and draws of prior times sites are those of NUTS."""

from __future__ import annotations

import numpy as np
import pytest

from fedstein.errors import InputError
from fedstein.inference import hyper_grid
from fedstein.inference.cells import values
from fedstein.inference.collapse import parts_of
from fedstein.inference.natural import GaussianSite, no_site
from fedstein.inference.points import uniforms
from fedstein.inference.reweighting import propose
from fedstein.inference.sampling import Sampler, sample_posterior
from fedstein.models import MODELS

KINDS = {"linear": 2, "negative_binomial": 2, "random_intercept_logistic": 2, "random_intercept_linear": 3}


def model_of(kind: str, features: int = 2):
    found = MODELS.find(kind)
    return found.build(features, found.classes or 0, found.settings())


def site(dim: int) -> GaussianSite:
    root = np.random.default_rng(2).standard_normal((dim, dim))
    precision = 6 * (root @ root.T + np.eye(dim))
    precision[3, :] = precision[:, 3] = 0  # log xi: no likelihood knows it
    return GaussianSite(precision @ np.linspace(-1, 1, dim), precision)


def test_every_regression_has_one_grid() -> None:
    for kind, count in KINDS.items():
        assert hyper_grid.has_grid(model_of(kind))
        assert len(parts_of(model_of(kind)).moved) == count
    assert not hyper_grid.has_grid(model_of("blr"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "random_intercept_linear"])
def test_moments_and_draws_are_those_of_nuts(kind: str) -> None:
    model = model_of(kind)
    total = site(model.dim)
    grid = hyper_grid.tabulate(model, total)
    mean, covariance = hyper_grid.moments(model, total, grid)
    nuts = sample_posterior(model, *total, sampler=Sampler(draws=1500))
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((nuts.mean - mean) / sd, 0, atol=0.08)
    np.testing.assert_allclose(nuts.sd / sd, 1, atol=0.08)
    cells = grid.cells
    places = uniforms(0, 0, 4000, len(cells.sides))
    moved = values(*cells[:3], cells.chosen((np.arange(4000) + 0.5) / 4000), places)
    np.testing.assert_allclose((moved.mean(axis=0) - mean[3:]) / sd[3:], 0, atol=0.03)
    np.testing.assert_allclose(moved.std(axis=0) / sd[3:], 1, atol=0.03)


def test_the_density_of_a_proposal_is_prior_times_sites() -> None:
    """Weights of draws by the very sites that they were made from differ by the widening of the proposal alone."""
    from fedstein.inference.reweighting import weigh_proposal

    model = model_of("linear")
    total = site(model.dim)
    found = propose(model, total, count=1000, seed=1)
    weighted = weigh_proposal(model, found, {}, {0: total})
    assert weighted.ess > 0.85 * 1000
    assert weighted.k < 0.5
    mean, _ = hyper_grid.moments(model, total, hyper_grid.tabulate(model, total))
    np.testing.assert_allclose((weighted.mean - mean) / np.sqrt(np.diag(weighted.covariance)), 0, atol=0.12)


def test_a_density_without_end_is_refused() -> None:
    model = model_of("linear")
    with pytest.raises(InputError, match="no finite moments"):
        hyper_grid.tabulate(model, no_site(model.dim)._replace(precision=np.full((model.dim, model.dim), np.nan)))


def test_a_search_that_ends_beside_the_mode_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An axis through such a point sees nothing of the density; this once ended a run in an IndexError."""
    model = model_of("linear")
    total, search, starts = site(model.dim), hyper_grid.laplace_frame, []

    def beside(model, ready, start):
        starts.append(start)
        found = search(model, ready, start)
        return found._replace(centre=found.centre + 40 * found.root[:, 0]) if len(starts) == 1 else found

    expected = hyper_grid.moments(model, total, hyper_grid.tabulate(model, total))
    monkeypatch.setattr(hyper_grid, "laplace_frame", beside)
    got = hyper_grid.moments(model, total, hyper_grid.tabulate(model, total))
    assert len(starts) == 2
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def test_a_mode_that_no_search_finds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("linear")
    search = hyper_grid.laplace_frame

    def beside(model, ready, start):
        found = search(model, ready, start)
        return found._replace(centre=found.centre + 40 * found.root[:, 0])

    monkeypatch.setattr(hyper_grid, "laplace_frame", beside)
    with pytest.raises(InputError, match="no finite moments"):
        hyper_grid.tabulate(model, site(model.dim))
