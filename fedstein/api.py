"""The short way in: a model and a list of client datasets give a posterior that can predict."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedstein import protocol
from fedstein.algorithms import ALGORITHMS
from fedstein.data import Dataset, validate
from fedstein.errors import InputError
from fedstein.evaluation import Evaluate, unmeasured
from fedstein.models import MODELS, Model
from fedstein.predictive import Predictive, mixture_moments
from fedstein.runs.config import Config, check_names, merge, resolve, unknown
from fedstein.runs.defaults import Facts
from fedstein.runs.wiring import build_evaluation, build_model, federate, make_parts, outcome
from fedstein.sites.gaussian import DRAWS, SiteGaussian

Client = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Posterior:
    """N particles of a model's posterior, and how they came about."""

    model: Model
    particles: np.ndarray  # N x d
    rounds: list[dict[str, Any]]  # one record a round, as in rounds.jsonl
    config: Config
    gaussian: SiteGaussian | None = None  # from full curvature sites: the posterior with the right width
    clients: list[dict[str, Any]] | None = None  # evaluate__where="clients": held-out rows and metrics of each

    def predict(self, x: np.ndarray, using: str = "particles", draws: int = DRAWS, seed: int = 0) -> np.ndarray:
        """Rows x classes probabilities averaged over particles; for regression rows x 2, mean and sd.

        ``using="gaussian"`` averages over that many seeded draws from the site Gaussian instead.
        """
        if using not in ("particles", "gaussian"):
            raise InputError(unknown("posterior", using, ["particles", "gaussian"]))
        if using == "gaussian" and self.gaussian is None:
            raise InputError(
                "this posterior has no Gaussian: it needs sites__kind='curvature' and sites__structure='full'"
            )
        x = as_rows(x, "x", self.model.features)
        if len(x) == 0:
            return np.zeros((0, self.model.classes or 2))
        particles = self.gaussian.draws(draws, seed) if self.gaussian and using == "gaussian" else self.particles
        out = Predictive(self.model, x)(jnp.asarray(particles, jnp.result_type(float)))
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
    (``selection__kind="hip"``, ``rounds=60``). ``test`` rows give metrics each round; without them
    ``evaluate__where="clients"`` does, on rows that every client holds out. Features are used as they come: scale them
    first. Precision follows JAX's x64 flag; float64 arrays without it are refused.
    """
    pairs = [as_client(pair, f"client {k}") for k, pair in enumerate(clients)]
    if not pairs:
        raise InputError("expected at least one client as (x, y), got none")
    widths = {x.shape[1] for x, _ in pairs}
    if len(widths) > 1:
        raise InputError(f"expected every client to have the same features, got {sorted(widths)} columns")
    raw = gather(settings or {}, flat, model)
    task = model.task if isinstance(model, Model) else MODELS[raw["model"]["kind"]].task
    joined = as_dataset(pairs, as_client(test, "test") if test is not None else None, task, model)
    config, notes = resolve(raw, Facts(joined.task, joined.classes, len(pairs)))
    for note in notes:
        warnings.warn(note, stacklevel=2)
    if isinstance(model, Model):
        built = model
        config = config.model_copy(update={"model": config.model.model_construct(kind="custom")})
    else:
        built = build_model(config, widths.pop(), joined.classes, joined.task)
    federation = federate(config, built, split_like(joined, pairs))
    by_clients = config.evaluate.where == "clients"
    if by_clients and test is not None:
        raise InputError("evaluate.where = 'clients' uses rows that each client holds out; leave test out")
    evaluate: Evaluate = unmeasured
    if by_clients or test is not None:
        evaluate = build_evaluation(config, federation.model, federation.engine, joined)
    parts = make_parts(config, federation.program, federation.engine, evaluate)
    last, records = protocol.first(parts), []
    for state, record in protocol.play(parts, last):
        last = state
        records.append(record)
        if on_round:
            on_round(record)
    found = outcome(config, federation.model, last.server)
    if found.refused:
        warnings.warn(found.refused, stacklevel=2)
    particles = federation.particles(last._replace(server=found.server))
    each = evaluate(last.round, found.server).by_client(federation.engine.clients) if by_clients else None
    return Posterior(built, particles, records, config, found.gaussian, each)


def gather(settings: Mapping[str, Any], flat: Mapping[str, Any], model: str | Model) -> dict[str, Any]:
    """Nested and flat settings as one raw config; what has no meaning here is refused, not ignored."""
    raw: dict[str, Any] = merge(settings, [])
    for key, value in flat.items():
        section, _, name = key.partition("__")
        if not name:
            raw[section] = value
        elif isinstance(raw.setdefault(section, {}), dict):
            raw[section][name] = value
        else:
            raise InputError(f"{key}: {section} is a value, not a section; write {section}=VALUE")
    for section, instead in NOT_HERE.items():
        if section in raw:
            raise InputError(f"[{section}] has no meaning in fedstein.fit: {instead}")
    own = raw.get("model", {})
    if isinstance(model, Model):
        if own:
            raise InputError(f"[model] settings are for the built-in models, got {own} with a model of your own")
        fill_in(raw, model)
    else:
        if model not in MODELS:
            raise InputError(unknown("model", model, list(MODELS)))
        if isinstance(own, dict) and own.get("kind", model) != model:
            raise InputError(f"model.kind = {own['kind']!r} contradicts the model {model!r}; leave it out")
        raw["model"] = {**own, "kind": model}
    raw["data"], raw["partition"] = {"name": "file"}, {"kind": "given"}
    raw["engine"] = {"precision": str(jnp.result_type(float))}
    return raw


def fill_in(raw: dict[str, Any], model: Model) -> None:
    """The defaults that depend on the model, for one that no registry knows; only keys that will be used."""
    check_names(raw)
    method = {"kind": "dsvgd", **raw.get("algorithm", {})}
    sites = {"kind": ALGORITHMS[method["kind"]].sites[0], **raw.get("sites", {})}
    if sites["kind"] == "particles":
        sites = {"density": "log", **sites}
    if sites["kind"] == "curvature":
        sites = {"structure": "full" if model.dim <= FULL else "diagonal", **sites}
    if method["kind"] != "fedavg":
        method = {"step_size": 0.01, "epsilon": 1e-6, **method}
    raw["sites"], raw["algorithm"] = sites, method


FULL = 200  # parameters up to which a model of one's own gets full curvature, a d x d array a client

NOT_HERE = {
    "data": "the rows are what you pass",
    "partition": "the clients are what you pass",
    "engine": "it runs in this process; set threads with the environment variable NPROC before JAX starts, and the "
    "precision with JAX's x64 flag",
    "checkpoint": "it keeps everything in memory; use fedstein run for long work",
}


def as_client(pair: Any, name: str) -> Client:
    """An (x, y) pair of arrays, checked."""
    try:
        x, y = pair
    except (TypeError, ValueError):
        raise InputError(f"{name}: expected a pair (x, y), got {type(pair).__name__}") from None
    x, y = as_rows(x, f"{name}: x"), np.asarray(y)
    if len(x) == 0:
        raise InputError(f"{name} has no rows; leave it out")
    if y.shape != (len(x),):
        raise InputError(f"{name}: expected {len(x)} targets, one a row, got shape {y.shape}")
    if y.dtype.kind not in "biuf":
        raise InputError(f"{name}: expected numbers as targets, got {y.dtype}; code the labels as 0, 1, ...")
    return x, y


def as_rows(x: Any, name: str, features: int = 0) -> np.ndarray:
    """Rows as the models want them: two-dimensional finite floats of JAX's precision."""
    precision = jnp.result_type(float)
    if getattr(x, "dtype", None) == np.float64 and precision != jnp.float64:
        raise InputError(
            f"{name} is float64 but JAX's x64 flag is off; pass x.astype(numpy.float32), or turn the flag on first"
        )
    array = np.asarray(x)
    if array.ndim != 2 or (features and array.shape[1] != features):
        raise InputError(f"{name}: expected rows x {features or 'features'}, got shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name}: expected numbers, got {array.dtype}")
    if not np.isfinite(array).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(f"{name}: expected finite numbers, got {array[row, column]} in row {row}, column {column}")
    return array.astype(precision)


def as_targets(y: np.ndarray, name: str, task: str) -> np.ndarray:
    """Labels as integers, or targets as floats."""
    if task == "regression":
        return y.astype(jnp.result_type(float))
    if not np.array_equal(y, y.astype(np.int64)):
        raise InputError(f"{name}: expected integer labels 0, 1, ..., got {y.dtype} values")
    return y.astype(np.int32)


def as_dataset(rows: Sequence[Client], test: Client | None, task: str, model: str | Model) -> Dataset:
    """All clients' rows as one validated dataset."""
    x = np.concatenate([x for x, _ in rows])
    y = np.concatenate([as_targets(y, f"client {k}", task) for k, (_, y) in enumerate(rows)])
    if test is not None:
        test_x, test_y = as_rows(test[0], "test: x", x.shape[1]), as_targets(test[1], "test", task)
    else:
        test_x, test_y = x[:1], y[:1]  # never evaluated
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
