"""A posterior with two modes of known place and width: methods that keep particles show both of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedstein
from fedstein.models import custom

SCALE = 3.0  # of the prior


def square_model() -> Any:
    """y ~ N(theta^2 x, 1), theta ~ N(0, SCALE^2): theta and -theta explain the rows equally well."""
    return custom(
        1,
        log_prior=lambda theta: -0.5 * jnp.sum(theta**2) / SCALE**2,
        log_likelihood=lambda theta, x, y: -0.5 * (y - theta[0] ** 2 * x[:, 0]) ** 2,
        init=lambda key: 1.5 * jax.random.normal(key, (1,)),
        predict=lambda theta, x: jnp.stack([theta[0] ** 2 * x[:, 0], jnp.zeros(len(x))], axis=1),
        task="regression",
        likelihood="gaussian",
    )


def rows() -> list[tuple[np.ndarray, np.ndarray]]:
    """Three clients that see different ranges of x; the true theta is 2 or -2."""
    draw = np.random.default_rng(5)
    x = [draw.uniform(low, low + 0.5, size=(12, 1)).astype(np.float32) for low in (0.2, 0.5, 0.8)]
    return [(a, (4 * a[:, 0] + draw.normal(size=12)).astype(np.float32)) for a in x]


def exact(clients: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """The mean and the sd of |theta|, by quadrature of the definition."""
    grid = np.linspace(0, 6, 20001)
    log_density = -0.5 * grid**2 / SCALE**2
    for x, y in clients:
        log_density = log_density - 0.5 * ((y[:, None] - grid**2 * x) ** 2).sum(axis=0)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = float(weight @ grid)
    return mean, float(np.sqrt(weight @ (grid - mean) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm__kind": "pooled_svgd"},
        {"sites__kind": "curvature", "sites__structure": "diagonal", "selection__kind": "hip"},
        {"sites__kind": "particles", "sites__density": "log", "selection__kind": "ksd"},
        {"algorithm__kind": "dsgld", "algorithm__chains": 40},
    ],
    ids=["pooled SVGD", "curvature sites", "the paper's sites", "DSGLD"],
)
def test_particles_are_in_both_modes(settings: dict[str, Any]) -> None:
    clients = rows()
    step = 1e-3 if settings.get("algorithm__kind") == "dsgld" else 0.05
    posterior = fedstein.fit(
        square_model(),
        clients,
        rounds=40,
        algorithm__particles=40,
        algorithm__step_size=step,
        algorithm__batch_size=100,
        **settings,
    )
    theta = np.asarray(posterior.particles)[:, 0]
    mean, sd = exact(clients)
    assert 0.2 < (theta > 0).mean() < 0.8
    assert abs(np.abs(theta).mean() - mean) < 2 * sd
    assert np.abs(theta).std() < 4 * sd


@pytest.mark.slow
def test_a_gaussian_method_keeps_one_mode() -> None:
    """PVI has one Gaussian: it says nothing of the other mode. This is the difference that particles make."""
    posterior = fedstein.fit(square_model(), rows(), rounds=20, algorithm__kind="pvi", algorithm__step_size=0.02)
    theta = np.asarray(posterior.particles)[:, 0]
    assert (theta > 0).mean() in (0.0, 1.0)
