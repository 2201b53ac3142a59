"""Programs pass single matrices to LAPACK: batches of them can wait for each other for ever (jaxlib 0.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.data.shard import make_shard
from fedstein.inference import hyper_grid, linear_algebra, scale_sites
from fedstein.inference.expansion import expand
from fedstein.inference.methods.fedpa import shrunk_solve
from fedstein.inference.natural import GaussianSite
from fedstein.inference.reweighting import propose, weigh_proposal
from fedstein.inference.sampling import Sampler, sample_posterior
from fedstein.models import MODELS

PRIMITIVES = ("cholesky_p", "triangular_solve_p", "lu_p", "eigh_p", "svd_p", "geqrf_p", "lu_solve_p")


def primitives() -> Iterator[Any]:
    for name in PRIMITIVES:
        if (found := getattr(jax.lax.linalg, name, None)) is not None:
            yield found


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The factorisations of more than one matrix that programs ask for; programs are traced anew."""
    found: list[str] = []

    def watched(name: str, bind: Callable[..., Any]) -> Callable[..., Any]:
        def record(*arrays: Any, **options: Any) -> Any:
            if np.ndim(arrays[0]) > 2:
                found.append(name)
            return bind(*arrays, **options)

        return record

    for each in primitives():
        monkeypatch.setattr(each, "bind", watched(each.name, each.bind))
    jax.clear_caches()
    yield found
    jax.clear_caches()


def model_of(kind: str) -> Any:
    info = MODELS.find(kind)
    return info.build(2, info.classes or (3 if info.task == "classification" else 0), info.settings())


def sums_of(dim: int, untouched: int) -> GaussianSite:
    root = np.random.default_rng(2).standard_normal((dim, dim))
    precision = 6 * (root @ root.T + np.eye(dim))
    precision[untouched, :] = precision[:, untouched] = 0  # log xi: no likelihood knows it
    return GaussianSite(precision @ np.linspace(-1, 1, dim), precision)


def test_the_fixture_finds_batches(batches: list[str]) -> None:
    matrices = jnp.eye(3) + jnp.zeros((4, 3, 3))
    jax.jit(jax.vmap(lambda a: jnp.linalg.cholesky(a)))(matrices)
    jax.jit(jax.vmap(lambda a: jnp.linalg.solve(a, a[0])))(matrices)
    jax.jit(lambda a: jax.lax.map(jnp.linalg.cholesky, a, batch_size=2))(matrices)
    assert batches.count("cholesky") == 2
    assert set(batches) >= {"cholesky", "lu", "triangular_solve"}


@pytest.mark.slow
def test_one_scale(batches: list[str]) -> None:
    model = model_of("blr")
    total = sums_of(4, 3)
    nodes = scale_sites.ScaleSites(
        np.array([-1.0, 1.0]), np.stack([total.eta] * 2), np.stack([total.precision] * 2), np.zeros(2), np.zeros(2)
    )
    for sites in (scale_sites.one_site(total), nodes):
        grid = scale_sites.tabulate(model, sites)
        scale_sites.moments(model, sites, grid)
        theta = scale_sites.draw(model, sites, grid, 20, 0)
        scale_sites.log_density(model, sites, grid, theta)
    scale_sites.node(model, 0.5, total)
    assert batches == []


@pytest.mark.slow
def test_several_scales(batches: list[str]) -> None:
    model = model_of("random_intercept_linear")
    total = sums_of(model.dim, 3)
    hyper_grid.moments(model, total, hyper_grid.tabulate(model, total))
    proposal = propose(model, total, count=40, seed=0)
    weigh_proposal(model, proposal, {0: np.zeros(40)}, {0: total})
    assert batches == []


@pytest.mark.slow
def test_chains(batches: list[str]) -> None:
    model = model_of("random_intercept_linear")
    sample_posterior(model, *sums_of(model.dim, 3), sampler=Sampler(warmup=50, draws=100))
    assert batches == []


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_expansions(batches: list[str], kind: str) -> None:
    model = model_of(kind)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 12) if kind == "softmax" else rng.standard_normal(12).astype(np.float32)
    shard = make_shard(model.prepare(rng.standard_normal((12, 2)).astype(np.float32)), y)
    expand(model, shard, np.zeros(model.dim), 0.1 * np.eye(model.dim))
    assert batches == []


def test_posterior_averaging(batches: list[str]) -> None:
    samples = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    found = jax.jit(jax.vmap(lambda x, b: shrunk_solve(x, b, 0.5), (1, 0)))(samples, np.ones((4, 5)))
    alone = [shrunk_solve(samples[:, n], jnp.ones(5), 0.5) for n in range(4)]
    np.testing.assert_allclose(found, np.stack(alone), rtol=2e-5)
    assert batches == []


def test_the_functions_are_numpys() -> None:
    root = np.random.default_rng(1).standard_normal((5, 3, 3))
    matrices = root @ root.transpose(0, 2, 1) + np.eye(3)
    with jax.enable_x64(True):
        values, vectors = linear_algebra.eigh_each(jnp.asarray(matrices))
        solved = jax.vmap(linear_algebra.solve)(jnp.asarray(matrices), jnp.ones((5, 3)))
        sizes = jax.vmap(linear_algebra.log_abs_det)(jnp.asarray(matrices))
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrices), rtol=1e-10)
    again = np.einsum("nij,nj,nkj->nik", vectors, values, vectors)
    np.testing.assert_allclose(again, matrices, atol=1e-10)
    np.testing.assert_allclose(solved, np.linalg.solve(matrices, np.ones((5, 3, 1)))[..., 0], rtol=1e-10)
    np.testing.assert_allclose(sizes, np.linalg.slogdet(matrices)[1], rtol=1e-10)
