"""The paper's sites: what t_k = 1 means, what the tilted score is made of, and how the local particles follow."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from building import particle_site

from fedstein import models, stein
from fedstein.inference.sites import Site
from fedstein.models.base import join
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.kernels import centred

N, BANDWIDTH = 7, 0.9
SHARD: Any = None  # the local particles are refitted to densities: nothing of a client's rows
RULE = AdaGrad(0.1, 0.5)  # an epsilon that leaves the size of phi visible in the first step


def site_of(model: models.Model, density: str = "log", steps: int = 1) -> Site:
    return particle_site(model, density=density, bandwidth=BANDWIDTH, steps=steps, optimiser=RULE)


def sample(model: models.Model, seed: int, dtype: Any) -> np.ndarray:
    return (0.8 * np.random.default_rng(seed).normal(size=(N, model.dim))).astype(dtype)


def kde(model: models.Model, density: str) -> Any:
    dim = model.kde_dim or model.dim
    return jax.jit(lambda at, centres: stein.kde_score(at, centres, BANDWIDTH, density, dim=dim))


def cavity_direction(site: Site, model: models.Model, received: np.ndarray, local: np.ndarray) -> np.ndarray:
    """The SVGD direction at the received particles for the cavity and the prior, likelihood left out."""

    @jax.jit
    def run(received: Any, local: Any) -> Any:
        blocks = model.split(received)
        cavity = site.cavity({"particles": received}, blocks, {"local": local})
        origin = jax.tree.map(lambda b: jnp.mean(b, axis=0), blocks)
        offset = jax.tree.map(jnp.subtract, blocks, origin)
        return join(site.direction(offset, cavity.score(blocks), [m.relative_to(origin) for m in cavity.mixtures]))

    return np.asarray(run(received, local))


@pytest.mark.parametrize("density", ["log", "reference"])
def test_at_the_start_the_cavity_is_the_prior_once(density: str, linear_gaussian: Any, precision: Any) -> None:
    """t_k = 1: the local particles are the global ones, the KDE terms cancel, what is left is score(p0)."""
    model = linear_gaussian.model()
    site, theta = site_of(model, density), sample(model, 0, precision.dtype)
    state = site.init(jnp.asarray(theta))
    np.testing.assert_array_equal(state["local"], theta)
    prior = -(theta - linear_gaussian.prior_mean) / linear_gaussian.prior_sd**2
    once = stein.svgd_direction(theta, prior.astype(precision.dtype))
    precision.close(cavity_direction(site, model, theta, theta), once, factor=5)


@pytest.mark.parametrize(("name", "density"), [("linear", "log"), ("blr", "reference")])
def test_the_cavity_is_prior_plus_kde_of_q_minus_kde_of_local(
    name: str, density: str, linear_gaussian: Any, precision: Any
) -> None:
    model = linear_gaussian.model() if name == "linear" else models.blr(1)
    theta, local = sample(model, 0, precision.dtype), sample(model, 1, precision.dtype)
    score = kde(model, density)
    prior = jax.jit(lambda t: join(model.prior_score(model.split(t))))(theta)
    explicit = np.asarray(prior) + np.asarray(score(theta, theta)) - np.asarray(score(theta, local))
    got = cavity_direction(site_of(model, density), model, theta, local)
    precision.close(got, stein.svgd_direction(theta, explicit), factor=10)


@pytest.mark.parametrize(("name", "density"), [("linear", "log"), ("blr", "reference")])
def test_one_refit_step_follows_the_three_kdes_and_no_prior(
    name: str, density: str, linear_gaussian: Any, precision: Any
) -> None:
    """eqn:local_svgd: score(kde of q_new) - score(kde of q_old) + score(kde of the old local particles)."""
    model = linear_gaussian.model() if name == "linear" else models.blr(1)
    before, after, local = (sample(model, i, precision.dtype) for i in range(3))
    site, score = site_of(model, density), kde(model, density)

    @jax.jit
    def refit(before: Any, after: Any, local: Any) -> Any:
        return site.refit(jax.random.key(0), model.split(before), model.split(after), {"local": local}, SHARD)

    explicit = sum(sign * np.asarray(score(local, centres)) for sign, centres in [(1, after), (-1, before), (1, local)])
    phi = np.asarray(stein.svgd_direction(local, explicit))
    expected = local + 0.1 * phi / (0.5 + np.abs(phi))
    precision.close(refit(before, after, local)["local"], expected, factor=10)


def test_refitting_to_particles_that_did_not_move_keeps_the_density(linear_gaussian: Any) -> None:
    """q_new = q_old: the target is the KDE of the local particles themselves, and they stay about where they are."""
    model = linear_gaussian.model()
    site = site_of(model, steps=50)
    before, local = (jnp.asarray(sample(model, i, np.float32)) for i in range(2))
    blocks = model.split(before)
    refitted = jax.jit(lambda: site.refit(jax.random.key(0), blocks, blocks, {"local": local}, SHARD))()
    np.testing.assert_allclose(np.mean(refitted["local"], axis=0), np.mean(local, axis=0), atol=0.1)


@pytest.mark.parametrize("density", ["log", "reference"])
def test_the_common_and_the_own_score_are_the_cavity_score(density: str, precision: Any) -> None:
    model = models.blr(1)
    theta, local = 3 + sample(model, 0, precision.dtype), 3 + sample(model, 1, precision.dtype)
    site, score = site_of(model, density), kde(model, density)

    @jax.jit
    def run(theta: Any, local: Any) -> Any:
        blocks = model.split(theta)
        offset, origin = centred(blocks)
        common = site.common_score({"particles": theta}, blocks, offset)
        return join(common), join(site.own_score(blocks, offset, origin, {"local": local}))

    shared, own = run(theta, local)
    prior = np.asarray(jax.jit(lambda t: join(model.prior_score(model.split(t))))(theta))
    precision.close(shared, prior + np.asarray(score(theta, theta)), factor=10)
    precision.close(own, -np.asarray(score(theta, local)), factor=10)
