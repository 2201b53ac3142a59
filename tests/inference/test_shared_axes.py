"""One decomposition for every h gives what a factorisation for each h gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.errors import InputError
from fedstein.inference import scale_sites
from fedstein.inference.collapse import parts_of
from fedstein.inference.natural import GaussianSite
from fedstein.inference.shared_axes import Conditionals, conditionals, joined, log_integrals
from fedstein.models import MODELS, Model


def model_of(kind: str) -> Model:
    info = MODELS.find(kind)
    return info.build(2, info.classes or (3 if info.task == "classification" else 0), info.settings())


def site_of(model: Model) -> GaussianSite:
    rng = np.random.default_rng(4)
    root = rng.standard_normal((model.dim, model.dim))
    return GaussianSite(rng.standard_normal(model.dim), root @ root.T)


def scales_of(model: Model, count: int = 7) -> np.ndarray:
    return np.random.default_rng(5).uniform(-2, 2, (count, len(parts_of(model).moved)))


def found_for(model: Model, moved: np.ndarray) -> Conditionals:
    found = conditionals(model, site_of(model), moved)
    assert found is not None
    return found


def test_means_and_covariances_are_those_of_the_whole_matrix() -> None:
    """P and mu from the definition: the Hessian and the mode in w of log prior plus site at fixed h."""
    model = model_of("blr")
    total, moved, given = site_of(model), scales_of(model), parts_of(model).given
    found = found_for(model, moved)
    with jax.enable_x64(True):
        for n, h in enumerate(moved):

            def log_target(w: jax.Array, h: np.ndarray = h) -> jax.Array:
                theta = jnp.zeros(model.dim).at[given].set(w).at[parts_of(model).moved].set(h)
                site = theta @ total.eta - 0.5 * theta @ total.precision @ theta
                return model.log_prior(model.split(theta[None]))[0] + site

            w = jnp.zeros(len(given))
            hessian = np.asarray(-jax.hessian(log_target)(w))
            np.testing.assert_allclose((found.axes * found.curvatures[n]) @ found.axes.T, hessian, atol=1e-9)
            np.testing.assert_allclose(found.means[n], np.linalg.solve(hessian, jax.grad(log_target)(w)), atol=1e-8)
            np.testing.assert_allclose(found.log_dets[n], np.linalg.slogdet(hessian)[1], rtol=1e-9)
    shares = np.arange(1.0, 8.0) / 28
    average = sum(
        s * np.linalg.inv((found.axes * c) @ found.axes.T) for s, c in zip(shares, found.curvatures, strict=True)
    )
    np.testing.assert_allclose(found.covariance(shares), average, atol=1e-9)


def test_the_grid_is_that_of_single_factorisations(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("blr")
    total = site_of(model)
    total.precision[3, :] = total.precision[:, 3] = total.eta[3] = 0
    sites = scale_sites.one_site(total)
    grid = scale_sites.tabulate(model, sites)
    mean, covariance = scale_sites.moments(model, sites, grid)
    theta = scale_sites.draw(model, sites, grid, 50, 0)
    densities = scale_sites.log_density_given(model, sites, theta, 1.2)
    monkeypatch.setattr(scale_sites, "with_shared_axes", lambda *_: None)
    other = scale_sites.tabulate(model, sites)
    np.testing.assert_allclose(grid.points, other.points, rtol=1e-9)
    np.testing.assert_allclose(grid.log_density, other.log_density, atol=1e-7)
    other_mean, other_covariance = scale_sites.moments(model, sites, other)
    np.testing.assert_allclose(mean, other_mean, atol=1e-8)
    np.testing.assert_allclose(covariance, other_covariance, atol=1e-8)
    away = densities - scale_sites.log_density_given(model, sites, theta, 1.2)
    np.testing.assert_allclose(away, away[0], atol=1e-8)


def test_integrals_over_w_are_those_of_quadrature() -> None:
    model = model_of("blr")
    total, moved = site_of(model), scales_of(model, 3)
    found = found_for(model, moved)
    logs = log_integrals(model, total, moved, found)
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    places = np.stack([part.ravel() for part in np.meshgrid(nodes, nodes, nodes)], axis=1)
    shares = np.prod(np.stack([part.ravel() for part in np.meshgrid(weights, weights, weights)]), axis=0)
    for n, h in enumerate(moved):
        given = found.means[n] + (places / np.sqrt(found.curvatures[n])) @ found.axes.T
        theta = joined(model, given, np.repeat(h[None], len(places), axis=0))
        with jax.enable_x64(True):
            prior = np.asarray(model.log_prior(model.split(jnp.asarray(theta))))
        target = prior + theta @ total.eta - 0.5 * np.einsum("ni,ij,nj->n", theta, total.precision, theta)
        flat = target + 0.5 * (places**2).sum(axis=1)
        integral = np.log(np.sum(shares * np.exp(flat - flat[0]))) + flat[0] - 0.5 * found.log_dets[n]
        np.testing.assert_allclose(integral, logs[n] + 1.5 * np.log(2 * np.pi), rtol=1e-6)


def test_several_precisions_and_what_is_not_finite_have_no_shared_axes() -> None:
    poisson = model_of("poisson")  # the intercept has a precision of its own
    assert conditionals(poisson, site_of(poisson), scales_of(poisson)) is None
    assert conditionals(model_of("blr"), GaussianSite(np.zeros(4), np.full((4, 4), np.nan)), np.zeros((1, 1))) is None


def test_a_direction_that_no_row_knows_does_not_disturb_the_grid() -> None:
    """Rounding in such a direction is no pull: far out, where the prior is flat, it would outweigh everything else."""
    model = model_of("blr")
    rows = np.random.default_rng(8).standard_normal((40, 3))
    rows[:, 2] = rows[:, 0] + rows[:, 1]
    precision = np.zeros((4, 4))
    precision[:3, :3] = 1e3 * rows.T @ rows
    total = GaussianSite(precision @ np.array([1.0, -1.0, 0.3, 0.0]) + np.array([1e-9, -1e-9, 1e-9, 0.0]), precision)
    grid = scale_sites.tabulate(model, scale_sites.one_site(total))
    mean, covariance = scale_sites.moments(model, scale_sites.one_site(total), grid)
    flat = np.array([1.0, 1.0, -1.0]) / np.sqrt(3)
    assert abs(mean[:3] @ flat) < 1e-6
    np.testing.assert_allclose(rows @ mean[:3], rows @ [1.0, -1.0, 0.3], atol=0.01)
    expected = grid.shares @ np.exp(-grid.points)  # the prior's variance, whatever the scale
    assert flat @ covariance[:3, :3] @ flat == pytest.approx(expected, rel=1e-6)


def test_a_pull_without_curvature_is_not_dropped() -> None:
    """exp(eta w) with a prior that may be as wide as it likes has no finite moments."""
    total = GaussianSite(np.array([1.0, 0.5, 0.2, 0.0]), np.diag([5.0, 5.0, 0.0, 0.0]))
    with pytest.raises(InputError, match="no finite moments"):
        scale_sites.tabulate(model_of("blr"), scale_sites.one_site(total))
