"""The short way in: a model and a list of client datasets give a posterior that can predict."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedstein import protocol
from fedstein.data import Dataset, validate
from fedstein.engines.local import LocalEngine
from fedstein.errors import InputError
from fedstein.metrics import METRICS
from fedstein.models import MODELS, Model
from fedstein.predictive import Evaluation, Predictive, mixture_moments
from fedstein.runs.config import Config, merge, resolve
from fedstein.runs.defaults import Facts
from fedstein.runs.wiring import build_model, build_program, make_parts

Client = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Posterior:
    """N particles of a model's posterior, and how they came about."""

    model: Model
    particles: np.ndarray  # N x d
    rounds: list[dict[str, Any]]  # one record a round, as in rounds.jsonl
    config: Config

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Rows x classes probabilities averaged over particles; for regression rows x 2, mean and sd."""
        x = as_rows(x, "x", self.model.features)
        out = Predictive(self.model, x)(jnp.asarray(self.particles))
        return np.exp(out) if self.model.task == "classification" else np.stack(mixture_moments(out), axis=1)


def fit(
    model: str | Model,
    clients: Sequence[Client],
    *,
    test: Client | None = None,
    settings: Mapping[str, Any] | None = None,
    on_round: Callable[[Mapping[str, Any]], None] | None = None,
    **flat: Any,
) -> Posterior:
    """Train on ``clients``, a list of (x, y) arrays, in this process.

    ``model`` is a name (``"blr"``, ``"bnn_classifier"``, ``"bnn_regressor"``) or a ``Model`` of your own
    (``fedstein.models.custom``). Settings are those of the config file, either nested
    (``settings={"selection": {"kind": "hip"}}``) or flat, with two underscores for the dot
    (``selection__kind="hip"``, ``rounds=60``). ``test`` rows give metrics each round. Features are used as they come:
    scale them first. Float precision follows JAX's x64 flag.
    """
    if not clients:
        raise InputError("expected at least one client as (x, y), got none")
    rows = [(as_rows(x, f"client {k}: x"), np.asarray(y)) for k, (x, y) in enumerate(clients)]
    widths = {x.shape[1] for x, _ in rows}
    if len(widths) > 1:
        raise InputError(f"expected every client to have the same features, got {sorted(widths)} columns")
    task = (
        MODELS[model].task if isinstance(model, str) and model in MODELS else getattr(model, "task", "classification")
    )
    joined = as_dataset(rows, test, task, model)
    raw = merge(dict(settings or {}), [])
    for key, value in flat.items():
        section, _, name = key.partition("__")
        if name:
            raw[section] = {**raw.get(section, {}), name: value}
        else:
            raw[section] = value
    if isinstance(model, str):
        raw["model"] = {**raw.get("model", {}), "kind": model}
    raw["data"] = {"name": "file"}
    raw["partition"] = {"kind": "given", "clients": len(rows)}
    precision = str(jnp.result_type(float))
    raw["engine"] = {"threads": 0, **raw.get("engine", {}), "precision": precision}
    config, _ = resolve(raw, Facts(joined.task, joined.classes, len(rows)))
    built = model if isinstance(model, Model) else build_model(config, widths.pop(), joined.classes, joined.task)
    program = build_program(config, built)
    engine = LocalEngine(program, [program.shard(x, y) for x, y in split_like(joined, rows)])
    evaluation = Evaluation(built, joined)
    parts = make_parts(config, program, engine, evaluation)
    if test is None:
        nothing: dict[str, float | None] = dict.fromkeys(METRICS)
        parts = parts._replace(evaluate=lambda server: nothing)
    last, records = protocol.first(parts), []
    for state, record in protocol.play(parts, last):
        last = state
        records.append(record)
        if on_round:
            on_round(record)
    return Posterior(built, np.asarray(last.server["particles"]), records, config)


def as_rows(x: Any, name: str, features: int = 0) -> np.ndarray:
    """Rows as the models want them: two-dimensional floats."""
    array = np.asarray(x)
    if array.ndim != 2 or (features and array.shape[1] != features):
        raise InputError(f"{name}: expected rows x {features or 'features'}, got shape {array.shape}")
    return array.astype(jnp.result_type(float))


def as_dataset(rows: Sequence[Client], test: Client | None, task: str, model: str | Model) -> Dataset:
    """All clients' rows as one validated dataset, so that a wrong row is named like everywhere else."""
    for k, (x, y) in enumerate(rows):
        if len(x) == 0:
            raise InputError(f"client {k} has no rows; leave it out")
        if y.shape != (len(x),):
            raise InputError(f"client {k}: expected {len(x)} targets, one a row, got shape {y.shape}")
        if not np.isfinite(x).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(x))[0])
            raise InputError(
                f"client {k}: expected finite features, got {x[row, column]} in row {row}, column {column}"
            )
    labels = np.int32 if task == "classification" else rows[0][0].dtype
    if task == "classification":
        for k, (_, y) in enumerate(rows):
            if not np.array_equal(y, np.asarray(y, np.int64)):
                raise InputError(f"client {k}: expected integer labels 0, 1, ..., got {y.dtype} values")
    x, y = np.concatenate([x for x, _ in rows]), np.concatenate([y for _, y in rows]).astype(labels)
    test_x, test_y = (as_rows(test[0], "test x", x.shape[1]), np.asarray(test[1], labels)) if test else (x[:1], y[:1])
    declared = model.classes if isinstance(model, Model) else 0
    classes = (declared or max(2, int(max(y.max(), test_y.max())) + 1)) if task == "classification" else 0
    count = x.shape[1]
    return validate(
        Dataset(
            name="clients",
            task=task,
            train_x=x,
            train_y=y,
            test_x=test_x,
            test_y=test_y,
            classes=classes,
            feature_names=tuple(f"x{i}" for i in range(count)),
            mean=np.zeros(count),
            scale=np.ones(count),
            label_names=tuple(str(label) for label in range(classes)),
        )
    )


def split_like(joined: Dataset, rows: Sequence[Client]) -> list[Client]:
    """The validated rows, client by client again."""
    edges = np.cumsum([0] + [len(x) for x, _ in rows])
    return [(joined.train_x[a:b], joined.train_y[a:b]) for a, b in itertools.pairwise(edges)]
