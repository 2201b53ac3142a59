"""Membership inference: was this row among a client's rows? From what the client sends, with and without protection.

The guesser knows the row and plays the client many times, with the row and without it (LiRA: Carlini et al. 2022). Two
guessers differ in what they know of the client's other rows:

- ``shadow``: nothing but the population that they come from. Every played client has other rows. In half of the plays
  the guesser fits a Gaussian to the messages of each of the two worlds, and scores the other half of the plays by
  log p(message | with the row) - log p(message | without it).
- ``all``: every one of them, which is whom differential privacy protects from. In a private run all that is random then
  is the noise, and the score is the exact likelihood ratio. Without protection the guesser computes the message itself.

Both choose the points at which gradients are taken, as a dishonest server can: there the row's residual is as large as
it can be. Messages are made by the product's client.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fedstein.data import covertype
from fedstein.federation.client import ClientProgram
from fedstein.inference.methods.base import Protection
from fedstein.inference.methods.dsvgd import DsvgdSettings
from fedstein.inference.methods.private_sites import private_sites
from fedstein.inference.sites import SITES
from fedstein.models import blr
from fedstein.privacy.guard import Guard
from fedstein.privacy.mechanism import GRADIENT, MOMENTS
from fedstein.privacy.noise import seed_secret
from fedstein.privacy.settings import PrivacySettings
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run

ROWS = 200  # the number of rows of a client
DELTA = 1e-5
FAR = 30.0  # |f| at the chosen point: the residual of the row is 1 to thirteen digits
MESSAGES = ("KSD report", "HIP report", "update")
Play = Callable[[np.ndarray, np.ndarray, int], np.ndarray]  # rows, labels, number of the play -> the message


class Row(NamedTuple):
    """A row and its label."""

    x: np.ndarray
    y: int


class Scores(NamedTuple):
    """Scores of plays without the row and with it; higher means that it seems to be there."""

    without: np.ndarray
    member: np.ndarray


@lru_cache(maxsize=1)
def population() -> tuple[np.ndarray, np.ndarray]:
    """The embedded training rows of Covertype and their labels."""
    dataset = covertype.load()
    return dataset.train_x.astype(np.float64), dataset.train_y


def canary(quantile: float) -> tuple[Row, np.ndarray]:
    """A row by how unusual it is, x' E[x x']^-1 x, and the numbers of all other rows.

    Args:
        quantile: 0.5 for a typical row, near 1 for a rare one.

    Returns:
        The row, and the numbers of the rows that the clients of all plays are drawn from.
    """
    x, y = population()
    moments = x.T @ x / len(x) + 1e-9 * np.eye(x.shape[1])
    unusual = np.einsum("ij,ij->i", x @ np.linalg.inv(moments), x)
    chosen = int(np.argsort(unusual, kind="stable")[int(quantile * (len(x) - 1))])
    return Row(x[chosen], int(y[chosen])), np.delete(np.arange(len(x)), chosen)


def point_against(row: Row) -> np.ndarray:
    """The coefficients, the intercept last, at which the model is as wrong about the row as it can be."""
    with_one = np.append(row.x, 1.0)
    return (1 - 2 * row.y) * FAR * with_one / (with_one @ with_one)


def unprotected(message: str, row: Row) -> Play:
    """Return the function by which an unprotected client makes a message, at particles around the chosen point.

    Args:
        message: One of ``MESSAGES``.
        row: The row that the server is after.

    Returns:
        The client. Of a HIP report the message is the mean over particles, of an update the site's eta and the
        diagonal of its precision, which keeps the guesser's Gaussians small.
    """
    program = _program("ksd" if message == "KSD report" else "hip")
    server = dict(program.first_server)
    particles = np.array(server["particles"])
    around = 0.1 * np.random.default_rng(0).standard_normal((len(particles), len(row.x) + 1))
    particles[:, : len(row.x) + 1] = point_against(row) + around
    server["particles"] = particles
    broadcast = program.method.broadcast(server, program.scheme.uses)
    prepared = program.prepare(1, broadcast)
    assignment = program.method.assign(server, None)

    def play(x: np.ndarray, y: np.ndarray, number: int) -> np.ndarray:
        shard = program.shard(x.astype(np.float32), y)
        if message == "update":
            update, _ = program.train(1, 0, assignment, {}, None, shard)
            return np.concatenate([np.asarray(update["eta"]), np.diag(np.asarray(update["precision"]))])
        report = program.report(1, 0, prepared, None, shard)
        found = np.asarray(report["ksd" if message == "KSD report" else "score"], np.float64)
        return found.reshape(1) if message == "KSD report" else found.mean(axis=0)

    return play


@lru_cache(maxsize=2)
def _program(scheme: str) -> ClientProgram:
    raw = {
        "data": {"name": "covertype"},
        "partition": {"clients": 4, "rows_per_client": ROWS},
        "selection": {"kind": scheme},
        "algorithm": {"batch_size": 2 * ROWS},
        "engine": {"threads": 1},
    }
    dataset = load_dataset(raw)
    return prepare_run(resolve(raw, facts_of(dataset))[0], dataset).federation.program


class PrivateClient(NamedTuple):
    """A client of a private run: its settings, how it sums over rows, and what adds the noise."""

    settings: PrivacySettings
    protection: Protection
    guard: Guard

    def releases(self, points: np.ndarray, x: np.ndarray, y: np.ndarray, number: int) -> dict[str, np.ndarray]:
        """All that leaves the client in a run.

        Args:
            points: The point of each visit.
            x: Rows without the intercept's column.
            y: Labels.
            number: The number of the play; each is a client of its own, with its own noise and ledger.

        Returns:
            ``gradient``, visits x coefficients, and ``moments``.
        """
        with_one = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        found: dict[str, Any] = {GRADIENT: []}
        for visit, point in enumerate(points):
            exact = self.protection.sums({"point": point}, {"visits": np.int32(visit)}, with_one, y)
            noisy = self.guard.release(number, visit, exact, self.protection.sensitivities)
            found[GRADIENT].append(noisy[GRADIENT])
            found |= {MOMENTS: noisy[MOMENTS]} if MOMENTS in noisy else {}
        return {GRADIENT: np.stack(found[GRADIENT]), MOMENTS: found[MOMENTS]}


def private_client(features: int, epsilon: float, secret: bytes | None = None) -> PrivateClient:
    """A client of a private run of logistic regression with all defaults.

    Args:
        features: The number of features.
        epsilon: Its budget at delta 1e-5.
        secret: The secret that noise is generated from; by default that of seed 0.

    Returns:
        The client.
    """
    settings = PrivacySettings(kind="record", epsilon=epsilon, delta=DELTA)
    model, algorithm, kind = blr(features), DsvgdSettings(particles=2), SITES["curvature"]
    method = private_sites(model, kind.build(model, kind.settings(kind="curvature"), algorithm), algorithm, settings)
    assert method.protection is not None
    return PrivateClient(settings, method.protection, Guard(settings, secret or seed_secret(0)))


def protected(row: Row, epsilon: float) -> Play:
    """Return the function by which a client of a private run makes all its messages, projected as the guesser chooses.

    Args:
        row: The row that the server is after.
        epsilon: The client's budget.

    Returns:
        The client. Its message is the mean of its gradients, and how far its moments point along the row's own.
    """
    client, points = private_client(len(row.x), epsilon), _points(row, epsilon)
    own = _contributions(client, row, points)

    def play(x: np.ndarray, y: np.ndarray, number: int) -> np.ndarray:
        found = client.releases(points, x, y, number)
        return np.append(found[GRADIENT].mean(axis=0), np.sum(found[MOMENTS] * own[MOMENTS]))

    return play


def guess_knowing_the_population(play: Play, row: Row, others: np.ndarray, plays: int, seed: int) -> Scores:
    """Scores of the guesser who knows the population that rows come from.

    Args:
        play: How the client makes its message.
        row: The row.
        others: The numbers of the rows that clients are drawn from.
        plays: Plays of each world; half of them are for fitting.
        seed: The seed of the draws.

    Returns:
        The scores of the other half.
    """
    x, y = population()
    worlds = []
    for member in (False, True):
        random = np.random.default_rng([seed, 18, member])
        messages = []
        for number in range(plays):
            rows = random.choice(others, ROWS - member, replace=False)
            own_x = np.concatenate([x[rows], row.x[None]]) if member else x[rows]
            own_y = np.append(y[rows], np.int32(row.y)) if member else y[rows]
            messages.append(play(own_x, own_y, 2 * number + member))
        worlds.append(np.stack(messages))
    half = plays // 2
    fitted = [_gaussian(world[:half]) for world in worlds]
    direction = np.linalg.solve(fitted[0][1] + fitted[1][1], fitted[1][0] - fitted[0][0])
    along = [world @ direction for world in worlds]
    spread = [(values[:half].mean(), values[:half].std()) for values in along]

    def ratio(values: np.ndarray) -> np.ndarray:
        (out, out_sd), (member_mean, member_sd) = spread
        return -(((values - member_mean) / member_sd) ** 2) / 2 - np.log(member_sd) + ((values - out) / out_sd) ** 2 / 2

    return Scores(ratio(along[0][half:]), ratio(along[1][half:]))


def guess_knowing_all_rows(
    row: Row, others: np.ndarray, epsilon: float, plays: int, seed: int, noise: float = 1.0
) -> Scores:
    """Scores of the guesser who knows all other rows of a client of a private run.

    Args:
        row: The row.
        others: The numbers of the rows that the client's other rows are drawn from, once.
        epsilon: The client's budget.
        plays: Plays of each world.
        seed: The seed of the draws and of the noise.
        noise: A factor on the noise: a mechanism that is not what it says, for checks of the check.

    Returns:
        The scores: the exact likelihood ratio, up to a constant.
    """
    x, y = population()
    rows = np.random.default_rng([seed, 18]).choice(others, ROWS - 1, replace=False)
    client, points = private_client(len(row.x), epsilon, seed_secret(seed)), _points(row, epsilon)
    if noise != 1.0:
        plan = client.guard.plan
        client.guard.plan = plan._replace(gradient=noise * plan.gradient, moments=noise * plan.moments)
        client.guard.budget = (100.0, DELTA)  # so that the ledger, which counts rightly, does not refuse it
    own, plan = _contributions(client, row, points), client.guard.plan
    sizes = {name: client.protection.sensitivities[name] * getattr(plan, name) for name in (GRADIENT, MOMENTS)}
    worlds = []
    for member in (False, True):
        own_x = np.concatenate([x[rows], row.x[None]]) if member else x[rows]
        own_y = np.append(y[rows], np.int32(row.y)) if member else y[rows]
        scores = []
        for number in range(plays):
            found = client.releases(points, own_x, own_y, 2 * number + member)
            scores.append(sum(float(np.sum(found[name] * own[name])) / sizes[name] ** 2 for name in sizes))
        worlds.append(np.array(scores))
    return Scores(*worlds)


def _points(row: Row, epsilon: float) -> np.ndarray:
    visits = PrivacySettings(kind="record", epsilon=epsilon).visits
    return np.repeat(point_against(row)[None], visits, axis=0)


def _contributions(client: PrivateClient, row: Row, points: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the contribution of the row to each sum."""
    x, y, state = np.append(row.x, 1.0)[None], np.array([row.y]), {"visits": np.int32(0)}
    exact = [client.protection.sums({"point": point}, state, x, y) for point in points]
    return {GRADIENT: np.stack([each[GRADIENT] for each in exact]), MOMENTS: exact[0][MOMENTS]}


def _gaussian(messages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance, with a small ridge for numbers that never change."""
    covariance = np.atleast_2d(np.cov(messages.T))
    ridge = 1e-6 * np.trace(covariance) / len(covariance) + 1e-12
    return messages.mean(axis=0), covariance + ridge * np.eye(len(covariance))
