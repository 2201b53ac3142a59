"""Gradient inversion: rows of handwritten digits from HIP reports, which are gradients, and from private releases.

The gradient of softmax regression at a point is sum_i (e_y - p)_i (x) [x_i, 1]. Hence:

- One row: every class's part is a multiple of [x, 1]. Divided by its last number it is the row, exactly.
- A few rows and an honest server: the parts of all particles span the rows. Rows and labels that reproduce all
  gradients are found by least squares within that span.
- Any number of rows and a server that chooses its particles: with weights so large that p is 0 or 1, a class's part at
  threshold t is a sum over the rows with v . x <= t, up to a constant. Between two thresholds with one row the
  difference is that row. The last number, the intercept's, counts the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedstein.federation.client import ClientProgram
from fedstein.privacy.accounting import plan_of
from fedstein.privacy.mechanism import GRADIENT, MOMENTS, clipped_sums, family_of, release, sensitivities
from fedstein.privacy.noise import seed_secret
from fedstein.privacy.settings import PrivacySettings
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run

CLASSES, PIXELS = 10, 64
SHARP = 1e6  # size of the weights of a chosen particle
RECOVERED = 0.05  # relative error up to which a row counts as recovered
Reports = Callable[[np.ndarray], np.ndarray]  # particles N x classes x 65 -> gradients of the same shape


class Digits(NamedTuple):
    """Training rows, 8 x 8 images with numbers between 0 and 1, and their labels."""

    x: np.ndarray
    y: np.ndarray


@lru_cache(maxsize=1)
def _program() -> tuple[ClientProgram, Digits]:
    raw = {
        "data": {"name": "digits"},
        "model": {"kind": "softmax"},
        "partition": {"clients": 3},
        "sites": {"kind": "curvature", "structure": "diagonal"},
        "selection": {"kind": "hip"},
        "algorithm": {"particles": 20},
        "engine": {"threads": 1},
    }
    dataset = load_dataset(raw)
    program = prepare_run(resolve(raw, facts_of(dataset))[0], dataset).federation.program
    return program, Digits(dataset.train_x, dataset.train_y)


def digits() -> Digits:
    """The embedded training rows of handwritten digits, as the product scales them."""
    return _program()[1]


def hip_reports(x: np.ndarray, y: np.ndarray) -> Reports:
    """A client with these rows, as a server sees it: particles go in, its HIP report comes out."""
    program, shard = _program()[0], _program()[0].shard(x, y)
    first = np.asarray(program.first_server["particles"])
    width = CLASSES * (PIXELS + 1)

    def report(particles: np.ndarray) -> np.ndarray:
        sent = np.array(first)
        sent[:, :width] = particles.reshape(len(first), width)
        broadcast = {"particles": jnp.asarray(sent)}
        found = program.report(1, 0, program.prepare(1, broadcast), None, shard)
        return np.asarray(found["score"], np.float64)[:, :width].reshape(len(first), CLASSES, PIXELS + 1)

    return report


def honest_particles() -> np.ndarray:
    """The particles that a server starts with, N x classes x 65."""
    first = np.asarray(_program()[0].first_server["particles"], np.float64)
    return first[:, : CLASSES * (PIXELS + 1)].reshape(len(first), CLASSES, PIXELS + 1)


def one_row(gradients: np.ndarray) -> np.ndarray:
    """The row of a client that has one.

    Args:
        gradients: Its report, N x classes x 65.

    Returns:
        The row.
    """
    parts = gradients.reshape(-1, PIXELS + 1)
    best = parts[np.argmax(np.abs(parts[:, -1]))]
    return best[:-1] / best[-1]


def few_rows(report: Reports, count: int, tries: int = 4, seed: int = 0) -> np.ndarray:
    """Rows of a client that has a few, from the report to an honest server.

    Args:
        report: The client.
        count: How many rows it has; ``hello`` tells.
        tries: Starts of the search; the best fit counts.
        seed: The seed of the starts.

    Returns:
        The rows that reproduce the report best, count x 64.
    """
    from scipy.optimize import minimize

    particles = honest_particles()
    gradients = report(particles)
    span = np.linalg.svd(gradients.reshape(-1, PIXELS + 1), full_matrices=False)[2][:count]
    scale = float(np.mean(gradients**2))

    def loss(z: jax.Array) -> jax.Array:
        rows = z[: count * count].reshape(count, count) @ span
        labels = jax.nn.softmax(z[count * count :].reshape(count, CLASSES))
        p = jax.nn.softmax(jnp.einsum("ncd,rd->nrc", particles, rows), axis=2)
        found = jnp.einsum("nrc,rd->ncd", labels[None] - p, rows)
        return jnp.mean((found - gradients) ** 2) / scale + jnp.mean((rows[:, -1] - 1) ** 2)

    random, best = np.random.default_rng(seed), None
    with jax.enable_x64(True):
        both = jax.jit(jax.value_and_grad(loss))
        for _ in range(tries):
            start = np.concatenate([random.standard_normal(count * count) * 3, random.standard_normal(count * CLASSES)])
            found = minimize(
                lambda z: tuple(np.asarray(part, np.float64) for part in both(z)), start, jac=True, method="L-BFGS-B",
                options={"maxiter": 1500, "ftol": 1e-14, "gtol": 1e-10},
            )  # fmt: skip
            best = found if best is None or found.fun < best.fun else best
    assert best is not None
    return (best.x[: count * count].reshape(count, count) @ span)[:, :-1]


def isolate(report: Reports, rounds: int, seed: int = 0) -> np.ndarray:
    """Rows of a client, by a server that chooses its particles.

    Args:
        report: The client.
        rounds: How many reports are asked for.
        seed: The seed of the direction along which rows are told apart.

    Returns:
        The rows that stood alone between two thresholds.
    """
    direction = np.random.default_rng(seed).standard_normal(PIXELS)
    direction /= np.linalg.norm(direction)
    size = len(honest_particles())

    def sums_below(thresholds: np.ndarray) -> np.ndarray:
        """Minus the sum over rows above each threshold, up to what the labels add, which is the same everywhere."""
        particles = np.zeros((size, CLASSES, PIXELS + 1))
        particles[:, 0, :-1], particles[:, 0, -1] = SHARP * direction, -SHARP * thresholds
        return report(particles)[:, 0]

    known: dict[float, np.ndarray] = {}
    asked = np.linspace(-9.0, 9.0, size)  # a row has 64 numbers between 0 and 1
    for _ in range(rounds):
        known |= dict(zip(asked.tolist(), sums_below(asked), strict=True))
        places = sorted(known)
        counts = [known[b][-1] - known[a][-1] for a, b in pairwise(places)]
        crowded = sorted(range(len(counts)), key=lambda i: -counts[i])[:size]
        asked = np.resize([(places[i] + places[i + 1]) / 2 for i in crowded], size)
        if round(counts[crowded[0]]) <= 1:
            break
    places = sorted(known)
    steps = [known[b] - known[a] for a, b in pairwise(places)]
    return np.array([step[:-1] / step[-1] for step in steps if abs(step[-1] - 1) < 0.01]).reshape(-1, PIXELS)


def from_private(x: np.ndarray, y: np.ndarray, epsilon: float, seed: int = 0) -> np.ndarray:
    """The best guess at the row of a client of a private run that has one.

    Args:
        x: The row, 1 x 64.
        y: Its label, which the guesser is told.
        epsilon: The client's budget for the whole run.
        seed: The seed of the noise.

    Returns:
        The mean of the row given all releases, for a guesser who knows mean and variance of all digits.
    """
    program = _program()[0]
    settings = PrivacySettings(kind="record", epsilon=epsilon)
    family, plan = family_of(program.model, settings), plan_of(settings)
    with_one = np.append(x, np.ones((len(x), 1)), axis=1).astype(np.float64)
    clip = settings.bound(with_one.shape[1])
    point = np.zeros(CLASSES * (PIXELS + 1))  # there the residuals are known: 0.9 for the label, -0.1 for the others
    exact, size = clipped_sums(family, point, with_one, y, clip), sensitivities(family, clip)
    residual = family.target(y)[0] - 1 / CLASSES
    weight = min(1.0, clip**2 / (with_one[0] @ with_one[0]))
    usual, variance = digits().x.mean(axis=0, dtype=np.float64), float(digits().x.var(axis=0).mean())
    secret, seen, information = seed_secret(seed), usual / variance, 1 / variance
    for visit in range(plan.visits):
        sd = plan.gradient * size[GRADIENT]
        noisy = release(GRADIENT, exact[GRADIENT], sd, secret, f"{epsilon} {visit}").reshape(CLASSES, -1)[:, :-1]
        seen = seen + weight * residual @ noisy / sd**2
        information += weight**2 * residual @ residual / sd**2
    sd = plan.moments * size[MOMENTS] / np.sqrt(2)
    noisy = release(MOMENTS, exact[MOMENTS], plan.moments * size[MOMENTS], secret, f"{epsilon} m")[:-1, -1]
    return (seen + weight * noisy / sd**2) / (information + weight**2 / sd**2)


def errors(rows: np.ndarray, found: np.ndarray) -> np.ndarray:
    """How far each row is from the nearest one that was found; 1 is the distance of the mean of all digits.

    Args:
        rows: The rows, count x 64.
        found: The rows that were found, any number of them.

    Returns:
        One number for each row.
    """
    if not len(found):
        return np.ones(len(rows))
    apart = np.linalg.norm(rows[:, None, :] - found[None, :, :], axis=2).min(axis=1)
    return np.asarray(apart / np.linalg.norm(rows - digits().x.mean(axis=0), axis=1))
