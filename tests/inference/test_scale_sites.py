"""The grid over the prior's scale against NUTS and against the density itself; sites at nodes against pooled NUTS."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedstein.data.shard import make_shard
from fedstein.errors import InputError
from fedstein.inference import scale_sites
from fedstein.inference.expansion import expand, expand_at_nodes, log_likelihoods
from fedstein.inference.natural import (
    GaussianSite,
    implausible_nodes,
    no_site,
    nodes_message,
    nodes_request,
    read_nodes,
    read_nodes_request,
)
from fedstein.inference.reweighting import _log_target, propose, refine_nodes, site_values, weigh_proposal
from fedstein.inference.sampling import Sampler, sample_posterior
from fedstein.inference.scale_sites import ScaleSites, can_have_nodes, has_scale, node, one_site, tabulate
from fedstein.inference.variational import Passes, refine_sites
from fedstein.models import blr
from fedstein.models.linear_regression import linear_regression

MODEL = blr(2)


def some_sums(seed: int = 0, rows: int = 30) -> GaussianSite:
    x = np.random.default_rng(seed).standard_normal((rows, 3))
    precision = np.zeros((4, 4))
    precision[:3, :3] = x.T @ x / 4
    return GaussianSite(precision @ np.array([1.0, -0.5, 0.2, 0.0]), precision)


def separable() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 2)).astype(np.float32)
    return x, (3 * x[:, 0] - x[:, 1] + 1.0 * rng.standard_normal(40) > 0).astype(np.int32)


def test_moments_and_draws_are_those_of_nuts() -> None:
    sums = some_sums()
    sites = one_site(sums)
    grid = tabulate(MODEL, sites)
    mean, covariance = scale_sites.moments(MODEL, sites, grid)
    chains = sample_posterior(MODEL, *sums, sampler=Sampler(draws=2000))
    np.testing.assert_allclose((mean - chains.mean) / chains.sd, 0, atol=0.04)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)) / chains.sd, 1, atol=0.03)
    draws = scale_sites.draw(MODEL, sites, grid, 8000, 1)
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / chains.sd, 0, atol=0.05)
    np.testing.assert_allclose(draws.std(axis=0) / np.sqrt(np.diag(covariance)), 1, atol=0.04)


def test_the_density_of_draws_is_prior_times_site() -> None:
    sums, theta = some_sums(), np.random.default_rng(1).standard_normal((50, 4))
    sites = one_site(sums)
    found = scale_sites.log_density(MODEL, sites, tabulate(MODEL, sites), theta)
    with jax.enable_x64(True):
        expected = np.asarray(_log_target(MODEL, sums, theta))
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=2e-3)  # the grid is interpolated


def test_equal_sites_at_all_nodes_are_one_site() -> None:
    sums = some_sums()
    scales = np.array([-1.0, 0.5, 2.0])
    q = [node(MODEL, scale, sums) for scale in scales]
    # The bound is tight where the likelihood is the site itself: F is the log of the integral.
    values = [float(site_values(sums, at.mean[None])[0] - 0.5 * np.sum(sums.precision * at.covariance)) for at in q]
    sites = ScaleSites(
        scales,
        np.stack([sums.eta] * 3),
        np.stack([sums.precision] * 3),
        np.array([at.bound for at in q]) + values,
        np.array([at.slope for at in q]),
    )
    grid, plain = tabulate(MODEL, sites), tabulate(MODEL, one_site(sums))
    assert grid.mean == pytest.approx(plain.mean, abs=5e-3)
    assert grid.sd == pytest.approx(plain.sd, rel=5e-3)


def test_which_models_have_a_scale() -> None:
    assert has_scale(MODEL)
    assert can_have_nodes(MODEL)
    assert not has_scale(linear_regression(2))
    assert not can_have_nodes(linear_regression(2))


def test_a_density_without_end_is_refused() -> None:
    sums = no_site(4)
    with pytest.raises(InputError, match="no finite moments"):
        tabulate(MODEL, one_site(sums._replace(precision=np.full((4, 4), np.nan))))


def test_messages_are_read_as_they_were_meant() -> None:
    rng = np.random.default_rng(5)
    root = rng.standard_normal((2, 3, 3))
    matrices = root @ root.transpose(0, 2, 1)
    means, covariances = read_nodes_request(nodes_request(np.ones((2, 3)), matrices))
    np.testing.assert_allclose(covariances, matrices, rtol=1e-6)
    assert means.shape == (2, 3)
    message = nodes_message([(GaussianSite(np.ones(3), matrix), 1.5) for matrix in matrices], means)
    (_, (second, value)) = read_nodes(message, means)
    np.testing.assert_allclose(second.precision, matrices[1], rtol=1e-6)
    np.testing.assert_allclose(second.eta, np.ones(3), atol=1e-6)
    assert value == 1.5
    assert implausible_nodes(message) == ""
    assert "negative" in implausible_nodes({**message, "precision": -message["precision"]})
    assert "finite" in implausible_nodes({**message, "value": np.array([1.0, np.nan])})


def test_log_likelihoods_and_expansions_at_nodes_are_those_of_one_row_at_a_time() -> None:
    x, y = separable()
    shard, theta = make_shard(MODEL.prepare(x), y), np.random.default_rng(6).standard_normal((70, 4))
    logits = MODEL.prepare(x).astype(np.float64) @ theta[:, :3].T
    expected = -np.sum(np.logaddexp(0, np.where(y[:, None] == 1, -logits, logits)), axis=0)
    np.testing.assert_allclose(log_likelihoods(MODEL, shard, theta), expected, rtol=1e-6)
    np.testing.assert_allclose(log_likelihoods(MODEL, shard, theta, temperature=2.0), expected / 2, rtol=1e-6)
    mean, covariance = theta[0], 0.3 * np.eye(4)
    ((site, value),) = expand_at_nodes(MODEL, shard, mean[None], covariance[None])
    alone = expand(MODEL, shard, mean, covariance)
    np.testing.assert_allclose(site.precision, alone.precision, rtol=1e-9, atol=1e-9)
    many = np.random.default_rng(7).multivariate_normal(mean, covariance, 20_000)
    assert value == pytest.approx(np.mean(log_likelihoods(MODEL, shard, many)), rel=0.01)


@pytest.mark.slow
def test_weighted_draws_of_nearly_separable_rows_agree_with_pooled_nuts() -> None:
    from fedstein.studies.reference import nuts
    from fedstein.studies.reference.target import Pooled

    x, y = separable()
    rows = MODEL.prepare(x)
    shards = {0: make_shard(rows[:25], y[:25]), 1: make_shard(rows[25:], y[25:])}
    found = refine_sites(
        MODEL,
        lambda names, mean, covariance: {k: expand(MODEL, shards[k], mean, covariance) for k in names},
        {k: no_site(4) for k in shards},
        passes=Passes(most=60),  # settled: before that, the last bits decide where the passes are
    )
    assert found.settled
    total = GaussianSite(*(sum(parts) for parts in zip(*found.sites.values(), strict=True)))  # type: ignore[arg-type]
    theta, _ = nuts.sample(Pooled(MODEL, rows, y, 1.0), nuts.Sampler(draws=5000, warmup=1000), lambda share: None)
    theta = theta.reshape(-1, 4)
    mean, sd = theta.mean(axis=0), theta.std(axis=0)

    def weighted(sites: ScaleSites | None) -> tuple[float, float, float]:
        proposal = propose(MODEL, total, sites=sites)
        answers = {k: log_likelihoods(MODEL, shard, proposal.draws) for k, shard in shards.items()}
        found_draws = weigh_proposal(MODEL, proposal, answers, found.sites)
        spread = np.sqrt(np.diag(found_draws.covariance)) / sd
        return found_draws.k, np.abs((found_draws.mean - mean) / sd).max(), np.abs(spread - 1).max()

    nodes = refine_nodes(
        MODEL,
        lambda names, means, covariances: {k: expand_at_nodes(MODEL, shards[k], means, covariances) for k in names},
        found.sites,
        total,
    )
    plain, better = weighted(None), weighted(nodes.sites)
    assert better[0] < 0.7
    assert better[1] < min(0.1, plain[1])
    assert better[2] < min(0.1, plain[2])
