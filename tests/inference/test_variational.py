"""Passes of variational sites: exact for linear models, close to pooled NUTS for logistic regression."""

from __future__ import annotations

import numpy as np
import pytest

from fedstein.data.shard import Shard, make_shard
from fedstein.errors import InputError
from fedstein.inference.expansion import expand
from fedstein.inference.natural import (
    GaussianSite,
    add_sites,
    expansion_request,
    natural_distance,
    no_site,
    read_request,
    read_site,
    site_message,
)
from fedstein.inference.sampling import Sampler
from fedstein.inference.variational import Passes, Refined, message_bytes, refine
from fedstein.models import Glm, Model, blr

QUICK = Passes(between=Sampler(warmup=200, draws=250), final=Sampler(warmup=200, draws=500))


def linear_model(dim: int) -> Model:
    """Linear regression with known noise under a standard normal prior."""
    base = blr(dim - 1)
    glm = Glm(lambda f, y, extra: -0.5 * (y - f[0]) ** 2)
    return base._replace(widths=(dim,), glm=glm, gaussian_given=None, linear_prior_score=-1.0)


def refined(model: Model, shards: list[Shard], passes: Passes = QUICK) -> Refined:
    """From nothing."""
    return refine(
        model,
        lambda client, mean, covariance: expand(model, shards[client], mean, covariance),
        {client: no_site(model.dim) for client in range(len(shards))},
        rows={client: int(shard.rows) for client, shard in enumerate(shards)},
        passes=passes,
    )


LINEAR = linear_model(3)


def linear_parts() -> tuple[list[Shard], np.ndarray, np.ndarray]:
    """Three clients' rows, and the exact posterior mean and covariance."""
    rng = np.random.default_rng(0)
    parts = [(rng.standard_normal((n, 3)), rng.standard_normal(n)) for n in (5, 30, 8)]
    x = np.concatenate([x.astype(np.float32) for x, _ in parts]).astype(np.float64)
    y = np.concatenate([y.astype(np.float32) for _, y in parts]).astype(np.float64)
    covariance = np.linalg.inv(x.T @ x + np.eye(3))
    return [make_shard(x.astype(np.float32), y.astype(np.float32)) for x, y in parts], covariance @ x.T @ y, covariance


def test_messages_in_single_precision_leave_a_linear_gaussian_posterior_exact() -> None:
    shards, mean, covariance = linear_parts()

    def ask(client: int, m: np.ndarray, v: np.ndarray) -> GaussianSite:
        at, width = read_request(expansion_request(m, v))
        return read_site(site_message(expand(LINEAR, shards[client], at, width), at), at)

    found = refine(LINEAR, ask, {client: no_site(3) for client in range(3)}, passes=QUICK)
    np.testing.assert_allclose(found.draws.mean, mean, atol=1e-6)
    np.testing.assert_allclose(found.draws.covariance, covariance, atol=1e-6)


def test_a_linear_gaussian_posterior_is_exact_after_one_expansion() -> None:
    shards, mean, covariance = linear_parts()
    found = refined(LINEAR, shards)
    assert found.settled
    assert len(found.records) == 2
    np.testing.assert_allclose(found.draws.mean, mean, atol=1e-6)
    np.testing.assert_allclose(found.draws.covariance, covariance, atol=1e-6)
    assert found.row_gradients == sum(
        2 * n * sum(k in r.asked for r in found.records) for k, n in enumerate((5, 30, 8))
    )
    assert found.bytes == sum(2 * len(record.asked) * message_bytes(3) for record in found.records)


def logistic_parts(rows: tuple[int, ...], weights: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Clients of logistic regression whose inputs have different means."""
    rng = np.random.default_rng(seed)
    beta = rng.standard_normal(weights)
    parts = []
    for n in rows:
        x = rng.standard_normal((n, weights)) + 0.5 * rng.standard_normal(weights)
        parts.append((x.astype(np.float32), (rng.random(n) < 1 / (1 + np.exp(-x @ beta))).astype(np.int32)))
    return parts


BLR = blr(3)


def test_the_fixed_point_is_reached_and_no_one_is_asked_for_nothing() -> None:
    model = BLR
    parts = logistic_parts((60, 20, 100), 3, 1)
    shards = [make_shard(model.prepare(x), y) for x, y in parts]
    found = refined(model, shards, QUICK._replace(tolerance=0.003))  # as many passes as it takes to learn whom to ask
    assert found.settled
    assert found.draws.trusted, found.draws.problems
    assert sum(len(record.asked) for record in found.records) < 3 * len(found.records)
    again = {client: expand(model, shards[client], found.draws.mean, found.draws.covariance) for client in range(3)}
    total = (add_sites(sites, model.dim) for sites in (found.sites, again))
    assert natural_distance(*total, found.draws.mean, found.draws.covariance) < 0.08


def test_the_distance_is_the_move_of_a_gaussian_posterior() -> None:
    rng = np.random.default_rng(3)
    root = rng.standard_normal((4, 4))
    old = GaussianSite(rng.standard_normal(4), root @ root.T + np.eye(4))
    covariance = np.linalg.inv(old.precision)
    mean, sd = covariance @ old.eta, np.sqrt(np.diag(covariance))
    change = rng.standard_normal((4, 4))
    new = GaussianSite(old.eta + 1e-5 * rng.standard_normal(4), old.precision + 1e-5 * (change + change.T))
    moved = np.linalg.inv(new.precision)
    shift = np.abs(moved @ new.eta - mean) / sd
    widening = np.abs(np.sqrt(np.diag(moved)) / sd - 1)
    expected = max(shift.max(), widening.max())
    assert natural_distance(old, new, mean, covariance) == pytest.approx(expected, rel=1e-3)
    assert natural_distance(old, old, mean, covariance) == 0


def test_sites_that_are_right_already_are_left_alone() -> None:
    model = BLR
    shards = [make_shard(model.prepare(x), y) for x, y in logistic_parts((60, 20, 100), 3, 1)]
    first = refined(model, shards)
    ask = [0]

    def counted(client: int, mean: np.ndarray, covariance: np.ndarray) -> GaussianSite:
        ask[0] += 1
        return expand(model, shards[client], mean, covariance)

    again = refine(model, counted, first.sites, passes=QUICK)
    assert again.settled
    assert len(again.records) == 1
    assert ask == [3]


def test_there_must_be_a_client() -> None:
    with pytest.raises(InputError, match="at least one client"):
        refine(blr(2), lambda client, mean, covariance: no_site(4), {})


@pytest.mark.slow
@pytest.mark.parametrize("rows", [(20, 25, 15), (200, 60, 120)], ids=["few rows", "more rows"])
def test_a_miniature_logistic_regression_agrees_with_pooled_nuts(rows: tuple[int, ...]) -> None:
    from fedstein.studies.reference import nuts
    from fedstein.studies.reference.target import Pooled

    model = blr(5)
    parts = logistic_parts(rows, 5, 4)
    found = refined(model, [make_shard(model.prepare(x), y) for x, y in parts], Passes())
    x, y = (np.concatenate([part[i] for part in parts]) for i in range(2))
    theta, checks = nuts.sample(
        Pooled(model, model.prepare(x), y, 1.0), nuts.Sampler(draws=3000, warmup=500), lambda share: None
    )
    assert checks.divergences < 12
    theta = theta.reshape(-1, model.dim)
    mean, sd = theta.mean(axis=0), theta.std(axis=0)
    assert found.draws.trusted, found.draws.problems
    np.testing.assert_allclose((found.draws.mean - mean) / sd, 0, atol=0.2)
    np.testing.assert_allclose(found.draws.sd / sd, 1, atol=0.15)
