"""The small federated models of simulation-based calibration (``sbc``), and rows that are drawn from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.models import MODELS, Model

FEATURES = 2
ATTEMPTS = 100  # the most draws of theta and rows until every class occurs
NO_EFFECT = -20.0  # log tau of rows whose client's effect is already in the intercept

Clients = list[tuple[np.ndarray, np.ndarray]]


class Study(NamedTuple):
    """A small federated model to calibrate.

    Attributes:
        kind: The name of the model.
        settings: Its prior. Priors are narrower than the defaults, because rows must be possible: counts of exp(20) are
            not.
        clients: The number of clients.
        rows: The number of rows of each client.
        rounds: The number of rounds before the variational passes.
        classes: The number of classes, if the model does not fix it.
    """

    kind: str
    settings: Mapping[str, Any]
    clients: int = 3
    rows: int = 40
    rounds: int = 6
    classes: int = 0


PRIOR = {"prior_shape": 4.0, "prior_rate": 4.0}
NOISE = {"noise_shape": 4.0, "noise_rate": 1.0}
COUNTS = {"prior_shape": 4.0, "prior_rate": 1.0, "intercept_sd": 0.7}
STUDIES = {
    "blr": Study("blr", PRIOR),
    "linear": Study("linear", {**PRIOR, "intercept_sd": 1.0, **NOISE}),
    "poisson": Study("poisson", COUNTS),
    "negative_binomial": Study(
        "negative_binomial", {**COUNTS, "dispersion_shape": 4.0, "dispersion_rate": 8.0}
    ),
    "softmax": Study("softmax", {**PRIOR, "intercept_sd": 1.0}, classes=3),
    "random_intercept_linear": Study(
        "random_intercept_linear", {**PRIOR, "intercept_sd": 1.0, **NOISE}, clients=12, rows=20, rounds=12
    ),
    "random_intercept_logistic": Study(
        "random_intercept_logistic", {**PRIOR, "intercept_sd": 1.0}, clients=12, rows=20, rounds=12
    ),
}  # fmt: skip


def chosen(kinds: Sequence[str]) -> dict[str, Study]:
    """Return the studies of these models, or all of them.

    Raises:
        InputError: There is no study of a model.
    """
    unknown = [kind for kind in kinds if kind not in STUDIES]
    if unknown:
        raise InputError(f"there is a study of calibration for {', '.join(STUDIES)}, got {unknown[0]!r}")
    return {kind: STUDIES[kind] for kind in kinds or STUDIES}


def built(study: Study) -> Model:
    """Build the model of a study. Its particles start from the prior, which is how theta is drawn."""
    kind = MODELS.find(study.kind)
    settings = kind.settings(**{**study.settings, "start": "prior"})
    return kind.build(FEATURES, kind.classes or study.classes, settings)


def names_of(model: Model) -> list[str]:
    """Name the parameters of the regressions: weights, intercept, and the logarithms of precisions."""
    if model.parameter_names is not None:
        return list(model.parameter_names(tuple(f"x{i}" for i in range(FEATURES))))
    rest = ["log xi", "log gamma"][: model.dim - FEATURES - 1]
    return [*(f"x{i}" for i in range(FEATURES)), "intercept", *rest]


def simulate(study: Study, model: Model, seed: int, number: int) -> tuple[np.ndarray, Clients]:
    """Draw theta from the prior, and clients' rows from the likelihood at theta.

    A simulation in which a class does not occur is drawn anew, theta and rows together. Which rows are kept then
    depends on the rows alone, and given any rows theta is a draw of the posterior, so that ranks stay uniform.

    Args:
        study: The study.
        model: Its model.
        seed: The seed of the study.
        number: The number of the simulation.

    Returns:
        theta (d), and the (x, y) of each client. Clients differ in the means of their inputs.

    Raises:
        InputError: A class never occurs.
    """
    key = jax.random.fold_in(jax.random.key(seed), number)
    for attempt in range(ATTEMPTS):
        theta, clients = _attempt(study, model, jax.random.fold_in(key, 1000 + attempt) if attempt else key)
        labels = np.concatenate([y for _, y in clients])
        if model.task == "regression" or len(np.unique(labels)) == model.classes:
            return theta, clients
    raise InputError(f"expected rows of every class of {study.kind}, got none of one in {ATTEMPTS} simulations")


def _attempt(study: Study, model: Model, key: Array) -> tuple[np.ndarray, Clients]:
    theta = model.init(jax.random.fold_in(key, 0), 1)
    clients = []
    for client in range(study.clients):
        key_client = jax.random.fold_in(key, client + 1)
        key_x, key_y = jax.random.split(key_client)
        shift = jnp.array([1.0, -1.0]) * (client - (study.clients - 1) / 2) / study.clients
        x = np.asarray(jax.random.normal(key_x, (study.rows, FEATURES)) + shift, np.float32)
        own = with_effect(model, theta, jax.random.fold_in(key_client, 2)) if model.whole_shard else theta
        y = outcomes(model, own, jnp.asarray(model.prepare(x)), key_y)
        clients.append((x, y.astype(np.float32 if model.task == "regression" else np.int32)))
    return np.asarray(theta, np.float64)[0], clients


def with_effect(model: Model, theta: Array, key: Array) -> Array:
    """The parameters of one client of a model with random intercepts: its effect is drawn and joins the intercept.

    Args:
        model: A model whose parameters include ``intercept`` and ``log tau``.
        theta: 1 x d.
        key: Fixes the effect.

    Returns:
        1 x d, with no further effect.
    """
    names = names_of(model)
    effect = jnp.exp(theta[0, names.index("log tau")]) * jax.random.normal(key)
    return theta.at[0, names.index("intercept")].add(effect).at[0, names.index("log tau")].set(NO_EFFECT)


def outcomes(model: Model, theta: Array, x: Array, key: Array) -> np.ndarray:
    """Draw the label or the target of each row, from the model's sampler or else from its predictions.

    Args:
        model: The model.
        theta: 1 x d.
        x: Rows, as the model takes them.
        key: Fixes the draws.

    Returns:
        One number for each row.
    """
    blocks = model.split(theta)
    if model.sample is not None:
        return np.asarray(model.sample(key, blocks, x))[:, 0]
    predicted = model.predict(blocks, x)
    if model.task == "classification":
        return np.asarray(jax.random.categorical(key, predicted))
    mean, log_precision = jnp.split(predicted, 2, axis=1)
    return np.asarray(mean + jnp.exp(-0.5 * log_precision) * jax.random.normal(key, mean.shape))[:, 0]
