"""Simulated rows with known coefficients: how often 90% intervals of the noisy posterior hold them.

The client's and the server's code is the product's; particles, which intervals do not come from, are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedstein.data import covertype
from fedstein.inference.methods.dsvgd import DsvgdSettings
from fedstein.inference.methods.private_sites import private_sites
from fedstein.inference.sites import SITES
from fedstein.models import blr
from fedstein.privacy.guard import Guard
from fedstein.privacy.noise import seed_secret
from fedstein.privacy.settings import PrivacySettings

CLIENTS = 10
Z = 1.6448536269514722  # half the width of a 90% interval in standard deviations
VARIANCE = 0.5  # the variance of the true coefficients


def gaussian_inputs(features: int, rows: int) -> Callable[[np.random.Generator], np.ndarray]:
    """Standard normal features, as standardised columns are."""
    return lambda random: random.standard_normal((CLIENTS * rows, features))


def covertype_inputs(random: np.random.Generator) -> np.ndarray:
    """The embedded training rows of Covertype in a random order: ten numbers, and 44 columns that are 0 or 1."""
    x = covertype.load().train_x.astype(np.float64)
    return x[random.permutation(len(x))]


TASKS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "gaussian, 9 features, 10 x 400": gaussian_inputs(9, 400),
    "gaussian, 9 features, 10 x 4,000": gaussian_inputs(9, 4000),
    "covertype's rows, 10 x 4,000": covertype_inputs,
}


def simulate(task: str, epsilon: float, seed: int) -> dict[str, Any]:
    """One simulated federation.

    Args:
        task: A key of ``TASKS``.
        epsilon: The budget at delta 1e-5; 0 is a budget so large that noise does not matter.
        seed: The seed of rows, coefficients and noise.

    Returns:
        How many coefficients there are, how many 90% intervals hold the truth, and the mean squared error in sds.
    """
    random = np.random.default_rng([seed, 18])
    x = TASKS[task](random)
    beta = random.standard_normal(x.shape[1] + 1) * np.sqrt(VARIANCE)
    with_one = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    y = (random.random(len(x)) < 1 / (1 + np.exp(-with_one @ beta))).astype(np.int32)
    privacy = PrivacySettings(kind="record", epsilon=epsilon or 100.0)
    model, settings = blr(x.shape[1]), DsvgdSettings(particles=2)
    site = SITES["curvature"].build(model, SITES["curvature"].settings(kind="curvature"), settings)
    method = private_sites(model, site, settings, privacy)
    protection, total = method.protection, method.spec.site.sums.total
    assert protection is not None
    guard = Guard(privacy, seed_secret(seed))
    states: dict[int, Any] = {}
    server: dict[str, Any] = {**total({}), "particles": np.zeros((2, model.dim), np.float32)}
    server["point"] = np.zeros(model.dim)
    parts = np.array_split(np.arange(len(x)), CLIENTS)
    for visit in range(privacy.visits):
        received = {name: np.asarray(array) for name, array in method.assign(server, None).items()}
        for client, rows in enumerate(parts):
            state = states.get(client) or method.client_state(server)
            exact = protection.sums(received, state, with_one[rows], y[rows])
            noisy = guard.release(client, visit, exact, protection.sensitivities)
            states[client] = protection.finish(noisy, received, state)
        server |= total(states)
    sd = np.sqrt(np.diag(server["covariance"]))[:-1]
    away = (server["point"][:-1] - beta) / sd
    return {
        "task": task, "epsilon": epsilon, "seed": seed, "coefficients": len(beta),
        "covered": int((np.abs(away) < Z).sum()), "squared": float(np.mean(away**2)), "sd": float(np.median(sd)),
    }  # fmt: skip
