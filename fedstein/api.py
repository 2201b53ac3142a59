"""The short way in: a model and a list of client datasets give a posterior that can predict."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedstein.data import Dataset, refuse_no_counts, validate
from fedstein.errors import InputError
from fedstein.federation import protocol
from fedstein.federation.evaluation import Evaluate, unmeasured
from fedstein.models import MODELS, Model, ModelTraits, check_model
from fedstein.posterior import Posterior, as_rows
from fedstein.runs.build import build_evaluation, build_model, conclude, round_context
from fedstein.runs.config import Layer, merge, resolve, unknown
from fedstein.runs.config_sources import combine
from fedstein.runs.defaults import Facts
from fedstein.runs.doubts import doubts
from fedstein.runs.federate import federate
from fedstein.runs.refining import refine_conclusion

Client = tuple[np.ndarray, np.ndarray]


def fit(
    model: str | Model,
    clients: Sequence[Client],
    *,
    test: Client | None = None,
    settings: Mapping[str, Any] | None = None,
    on_round: Callable[[Mapping[str, Any]], None] | None = None,
    **flat: Any,
) -> Posterior:
    """Train a posterior over clients' data in this process.

    Features are used as they come, so scale them first. Precision follows JAX's x64 flag.

    Args:
        model: The name of a model (``"blr"``, ``"linear"``, ``"poisson"``, ..., an import path), or a ``Model`` of your
            own (``fedstein.models.custom``).
        clients: One (x, y) pair of arrays for each client.
        test: Rows that give metrics in each round. Without them ``evaluate__where="clients"`` does, on rows that every
            client holds out.
        settings: Settings of the config file, nested: ``{"selection": {"kind": "hip"}}``.
        on_round: Is called with the record of every round, a mapping with the keys of ``rounds.jsonl``.
        **flat: Settings with two underscores for the dot: ``selection__kind="hip"``, ``rounds=60``.

    Returns:
        The posterior.

    Raises:
        InputError: Rows, labels or settings are wrong; float64 arrays while JAX's x64 flag is off are, too; or the
            functions of a model of your own do not fit together (``fedstein.models.check_model``).
    """
    pairs = [as_client(pair, f"client {k}") for k, pair in enumerate(clients)]
    if not pairs:
        raise InputError("expected at least one client as (x, y), got none")
    widths = {x.shape[1] for x, _ in pairs}
    if len(widths) > 1:
        raise InputError(f"expected every client to have the same features, got {sorted(widths)} columns")
    layers = gather(settings or {}, flat, model)
    task = model.task if isinstance(model, Model) else MODELS[model].task
    joined = as_dataset(pairs, as_client(test, "test") if test is not None else None, task, model)
    facts = Facts(joined.task, joined.classes, len(pairs), features=joined.train_x.shape[1])
    if isinstance(model, Model):
        check_model(model, joined.train_x, joined.train_y, thorough=False)
        traits = ModelTraits(target=model.target, whole_shard=model.whole_shard)
        facts = facts._replace(traits=traits, dim=model.dim)
    config, notes = resolve(layers, facts)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    built = model if isinstance(model, Model) else build_model(config, widths.pop(), joined.classes, joined.task)
    if built.target == "count" and test is not None:
        refuse_no_counts(joined.test_y, "test")
    federation = federate(config, built, split_like(joined, pairs))
    by_clients = config.evaluate.where == "clients"
    if by_clients and test is not None:
        raise InputError("evaluate.where = 'clients' uses rows that each client holds out; leave test out")
    evaluate: Evaluate = unmeasured
    if by_clients or test is not None:
        evaluate = build_evaluation(config, federation.model, federation.engine, joined)
    context = round_context(config, federation.program, federation.engine, evaluate)
    last, records = protocol.first(context), []
    for state, record in protocol.play(context, last):
        last = state
        records.append(record.to_dict())
        if on_round:
            on_round(records[-1])
    method = context.method
    found = conclude(method, last.server)
    if found.refused:
        warnings.warn(found.refused, stacklevel=2)
    found, refined = refine_conclusion(config, federation.engine, last, found)
    particles, each = federation.particles(found.server), None
    if by_clients:
        reading = evaluate(last.round, method.posterior(found.server), last.sites)
        each = reading.by_client(federation.engine.clients)
    return Posterior(
        built,
        particles,
        records,
        config,
        found.gaussian,
        each,
        sums=found.sums,
        doubts=doubts(config, records, refined),
    )


def gather(settings: Mapping[str, Any], flat: Mapping[str, Any], model: str | Model) -> list[Layer]:
    """Collect what was passed to ``fit`` as layers of a config.

    Args:
        settings: Nested settings.
        flat: Keyword arguments, with two underscores for the dot; they win over ``settings``.
        model: A model's name, or a model.

    Returns:
        The layers for ``resolve``.

    Raises:
        InputError: A setting has no meaning here, or contradicts the model.
    """
    keywords: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, name = key.partition("__")
        if not name:
            keywords[section] = value
        elif isinstance(keywords.setdefault(section, {}), dict) and isinstance(settings.get(section, {}), Mapping):
            keywords[section][name] = value
        else:
            raise InputError(f"{key}: {section} is a value, not a section; write {section}=VALUE")
    layers: list[Layer] = [("settings", merge(settings, [])), ("the keyword arguments", keywords)]
    raw = combine(layers)
    for section, instead in NOT_HERE.items():
        if section in raw:
            raise InputError(f"[{section}] has no meaning in fedstein.fit: {instead}")
    own = raw.get("model", {})
    here: dict[str, Any] = {
        "data": {"name": "file"},
        "partition": {"kind": "given"},
        "engine": {"precision": str(jnp.result_type(float))},
    }
    if isinstance(model, Model):
        if own:
            raise InputError(f"[model] settings are for the built-in models, got {own} with a model of your own")
    else:
        if model not in MODELS:
            raise InputError(unknown("model", model, list(MODELS)))
        if isinstance(own, Mapping) and own.get("kind", model) != model:
            raise InputError(f"model.kind = {own['kind']!r} contradicts the model {model!r}; leave it out")
        here["model"] = {"kind": model}
    return [("fedstein.fit", here), *(layer for layer in layers if layer[1])]


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
