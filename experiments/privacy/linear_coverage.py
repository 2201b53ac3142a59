"""Measure how often the 90% intervals of private linear regression hold the truth, on simulated rows.

python experiments/privacy/linear_coverage.py [SIMULATIONS]

writes one line for each setting to ``linear.csv`` beside this file. The features are Gaussian, the coefficients have
variance 1 / (features + 1), and the noise has standard deviation 0.7. Ten clients release what the defaults of
``privacy.kind = "record"`` ask for, with ``largest_target = 6``.
"""

from __future__ import annotations

import csv
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.inference.methods.dsvgd import DsvgdSettings
from fedstein.inference.methods.private_sites import private_sites
from fedstein.inference.sites import SITES
from fedstein.models import MODELS
from fedstein.privacy.guard import Guard
from fedstein.privacy.noise import seed_secret
from fedstein.privacy.settings import PrivacySettings

CLIENTS, NOISE_SD, LARGEST_TARGET = 10, 0.7, 6.0
SETTINGS = ((9, 400), (9, 4000), (30, 400))  # features, rows of each client
EPSILONS = (100.0, 8.0, 3.0, 1.0)
Z90 = 1.6448536269514722


@cache
def built(features: int) -> Any:
    kind = MODELS["linear"]
    return kind.build(features, 0, kind.settings(kind="linear"))


def simulate(features: int, rows: int, epsilon: float, seed: int) -> tuple[float, bool]:
    """The share of coefficients inside their 90% intervals, and whether log gamma is inside its own."""
    random = np.random.default_rng([seed, features, rows])
    x = np.c_[random.standard_normal((CLIENTS * rows, features)), np.ones(CLIENTS * rows)]
    truth = random.standard_normal(features + 1) / np.sqrt(features + 1)
    y = x @ truth + NOISE_SD * random.standard_normal(len(x))
    privacy = PrivacySettings(kind="record", epsilon=epsilon, largest_target=LARGEST_TARGET)
    model, settings = built(features), DsvgdSettings(particles=2)
    site = SITES["curvature"].build(model, SITES["curvature"].settings(kind="curvature"), settings)
    method = private_sites(model, site, settings, privacy)
    protection, total = method.protection, method.spec.site.sums.total
    guard, states = Guard(privacy, seed_secret(seed)), {}
    server = {**total({}), "particles": np.zeros((2, model.dim), np.float32)}
    for visit in range(privacy.visits):
        received = {name: np.asarray(array) for name, array in method.assign(server, None).items()}
        for client, own in enumerate(np.array_split(np.arange(len(x)), CLIENTS)):
            state = states.get(client) or method.client_state(server)
            released = guard.release(
                client, visit, protection.sums(received, state, x[own], y[own]), protection.sensitivities
            )
            states[client] = protection.finish(released, received, state)
    server |= total(states)
    known = [*range(features + 1), -1]  # the coefficients and log gamma; between them is log xi, which has no truth
    point, sd = server["point"][known], np.sqrt(np.diag(server["covariance"]))[known]
    away = np.abs(point - np.append(truth, -2 * np.log(NOISE_SD))) / sd
    return float(np.mean(away[:-1] < Z90)), bool(away[-1] < Z90)


def main() -> None:
    simulations = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with (Path(__file__).parent / "linear.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["features", "rows_per_client", "epsilon", "simulations", "coefficients", "log_gamma"])
        for features, rows in SETTINGS:
            for epsilon in EPSILONS:
                found = [simulate(features, rows, epsilon, seed) for seed in range(simulations)]
                shares = np.mean(np.array(found, float), axis=0).round(4)
                writer.writerow([features, rows, epsilon, simulations, *shares])
                file.flush()
                print(features, rows, epsilon, shares, flush=True)


if __name__ == "__main__":
    main()
