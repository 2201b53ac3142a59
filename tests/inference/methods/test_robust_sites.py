"""Bounded sites: what one client can do to the posterior is limited, and honest clients lose nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedstein.errors import InputError
from fedstein.inference.methods.robust_sites import at_most, bounded_sum, positive, site_weights
from fedstein.inference.natural import GaussianSite
from fedstein.runs.config import Config, resolve
from fedstein.runs.federate import facts_of, load_dataset
from fedstein.selection import SCHEMES
from fedstein.selection.resting import resting
from fedstein.stein import RBF
from fedstein.studies.robust.lies import federation_with_liars

BASE: dict[str, Any] = {
    "data": {"name": "breast_cancer"},
    "partition": {"clients": 4},
    "engine": {"threads": 1},
    "robust": {"kind": "bounded"},
}


def honest_sites(count: int = 9, seed: int = 0) -> list[GaussianSite]:
    random, truth = np.random.default_rng(seed), np.array([1.0, -2.0, 0.5])
    found = []
    for _ in range(count):
        x = random.standard_normal((40, 3))
        precision = x.T @ x
        found.append(GaussianSite(x.T @ (x @ truth + random.standard_normal(40)), precision))
    return found


def mode_of(site: GaussianSite) -> np.ndarray:
    return np.linalg.solve(site.precision + np.eye(3), site.eta)


def test_wide_bounds_give_the_sum() -> None:
    sites = honest_sites()
    found = bounded_sum(sites, 1e6, 1e6)
    np.testing.assert_allclose(found.eta, sum(site.eta for site in sites), rtol=1e-12)
    np.testing.assert_allclose(found.precision, sum(site.precision for site in sites), rtol=1e-12)


@pytest.mark.parametrize("size", [10.0, 1e3, 1e9])
def test_a_liar_moves_the_mode_by_a_bounded_amount_whatever_it_sends(size: float) -> None:
    sites = honest_sites()
    honest = mode_of(bounded_sum(sites, 1.0, 3.0))
    plain = mode_of(GaussianSite(sum(s.eta for s in sites), sum(s.precision for s in sites)))
    sd = 1 / np.sqrt(np.diag(sum(s.precision for s in sites)))
    assert np.all(np.abs(honest - plain) < sd)  # without liars little is lost
    for lie in (
        GaussianSite(-size * sites[0].eta, size * sites[0].precision),
        GaussianSite(np.array([size, size, -size]), sites[0].precision),
        GaussianSite(np.array([size, 0.0, 0.0]), np.zeros((3, 3))),
        GaussianSite(sites[0].eta, -size * np.eye(3)),
    ):
        moved = mode_of(bounded_sum([lie, *sites[1:]], 1.0, 3.0))
        assert np.all(np.abs(moved - honest) < 3 * sd)
    added = mode_of(GaussianSite(sum(s.eta for s in sites[1:]) + size, sum(s.precision for s in sites)))
    if size >= 1e3:
        assert np.any(np.abs(added - honest) > 10 * sd)  # the plain sum has no such bound


def test_pulls_and_curvatures_are_within_their_bounds_at_the_fixed_point() -> None:
    sites = honest_sites()
    sites[2] = GaussianSite(-8 * sites[2].eta, 8 * sites[2].precision)
    weights = site_weights(sites, 1.0, 3.0)
    traces = weights * np.array([np.trace(site.precision) for site in sites])
    assert traces.max() <= 3.0 * np.median([np.trace(site.precision) for site in sites]) * (1 + 1e-9)
    assert weights.argmin() == 2
    assert np.all((weights > 0) & (weights <= 1))
    np.testing.assert_allclose(at_most(np.array([1.0, 2.0, 40.0, 0.0]), 2.0), [1.0, 1.0, 0.1, 1.0])


def test_a_matrix_that_is_no_curvature_is_replaced_by_the_nearest_one() -> None:
    matrix = np.diag([2.0, -1.0, 3.0])
    np.testing.assert_allclose(positive(matrix), np.diag([2.0, 0.0, 3.0]), atol=1e-12)
    kept = honest_sites()[0].precision
    np.testing.assert_array_equal(positive(kept), 0.5 * (kept + kept.T))


def test_who_has_trained_rests_whatever_it_reports() -> None:
    kind = SCHEMES["ksd"]
    scheme = resting(kind.build(kind.settings(kind="ksd"), RBF), 2)
    memory, random, chosen = scheme.first(0, 5), np.random.default_rng(0), []
    for _ in range(60):
        drawn = scheme.draw(memory, [0, 1, 2, 3, 4], [1.0, 1.0, 1e30, 1.0, 1.0], random.uniform(1e-6, 1, 5))
        assert drawn.probabilities is not None
        assert sum(drawn.probabilities) == pytest.approx(1.0)
        assert sorted(drawn.order) == [0, 1, 2, 3, 4]
        chosen.append(drawn.order[0])
        memory = scheme.after(memory, chosen[-1:], 0, 5)
    assert all(chosen[i] not in chosen[max(0, i - 2) : i] for i in range(60))
    assert chosen.count(2) == 20
    assert resting(scheme, 0) is scheme


def config_of(**sections: Any) -> Config:
    raw = {**BASE, **{k: {**BASE.get(k, {}), **v} if isinstance(v, dict) else v for k, v in sections.items()}}
    return resolve(raw, facts_of(load_dataset(raw)))[0]


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"robust": {"rest": 4}}, "all of them would rest; take at most 3"),
        ({"privacy": {"kind": "record"}}, "hides lies"),
        ({"privacy": {"kind": "record"}, "robust": {"kind": "none", "rest": 1}}, "nobody can be chosen too often"),
        ({"algorithm": {"kind": "pvi"}, "sites": {"kind": "none"}}, "works with algorithm.kind = 'dsvgd'"),
        ({"sites": {"kind": "particles"}}, "sites.structure = 'full'"),
        ({"model": {"kind": "bnn_classifier"}}, "sites.structure = 'full'"),
        ({"sites": {"expand": "variational"}}, "add up what clients send"),
        ({"partition": {"clients": 2}}, "three clients or more"),
        ({"robust": {"kind": "none", "pull": 2.0}}, r"robust\.pull is not used"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        config_of(**sections)


def test_a_config_names_robust_only_where_it_is_used() -> None:
    assert config_of().to_dict()["robust"] == {"kind": "bounded", "pull": 1.0, "curvature": 3.0, "rest": 0}
    assert config_of(robust={"kind": "none", "rest": 2}).to_dict()["robust"] == {"rest": 2}
    assert "robust" not in config_of(robust={"kind": "none"}).to_dict()


@pytest.mark.slow
def test_liars_ruin_a_run_and_bounds_save_it(tmp_path: Path) -> None:
    free, bound = (
        federation_with_liars("round_robin", "scaled", 0.2, protected, 0, tmp_path / str(protected), rounds=30)
        for protected in (False, True)
    )
    assert free["accuracy"] < 0.65
    assert bound["accuracy"] > 0.7
