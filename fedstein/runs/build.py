"""Building the objects that a config names: model, site, method, scheme, metrics and codec."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from fedstein import data
from fedstein.data.basis import Rotation, rotate
from fedstein.errors import InputError
from fedstein.evaluation.metrics import Metric, choose_metrics
from fedstein.federation.channel import KINDS, Channel, Wire
from fedstein.federation.client import ClientProgram
from fedstein.federation.codecs import CODECS
from fedstein.federation.engine import Engine
from fedstein.federation.evaluation import ClientEvaluation, Evaluate, Evaluation, unmeasured
from fedstein.federation.round_context import RoundContext
from fedstein.inference.methods import METHODS, Conclusion, Method
from fedstein.inference.methods.base import OnBlock
from fedstein.inference.methods.private_networks import private_networks
from fedstein.inference.methods.private_pvi import private_pvi
from fedstein.inference.methods.private_sites import private_sites
from fedstein.inference.methods.robust_sites import robust_sites
from fedstein.inference.schedule import SCHEDULES
from fedstein.inference.sites import SITES, Site
from fedstein.machine import memory
from fedstein.models import MODELS, Model
from fedstein.plugin_errors import checked_build
from fedstein.privacy.guard import Guard
from fedstein.runs.config import Config
from fedstein.runs.sections import CUSTOM
from fedstein.selection import SCHEMES, ReportingSettings, Scheme
from fedstein.selection.barred import without
from fedstein.selection.resting import resting
from fedstein.selection.within_visits import within_visits
from fedstein.stein import KERNELS


def barred_from(config: Config) -> frozenset[int]:
    """The clients that do not take part. A pooled method has one client, without the rows of barred clients."""
    return frozenset(() if METHODS.find(config.algorithm.kind).pooled else config.selection.barred or ())


def build_model(config: Config, features: int, classes: int, task: str) -> Model:
    """Build the model of the config for rows of that many features.

    Raises:
        InputError: The data does not suit the model, or the config names a model that was passed to ``fedstein.fit``.
    """
    if config.model.kind == CUSTOM:
        raise InputError(
            "this run has a model of your own, which a run folder cannot hold; in Python, pass the model: "
            "fedstein.load(DIR, model=...), or fedstein.resume(DIR, model=...) for a run that has not ended"
        )
    kind = MODELS.find(config.model.kind)
    if kind.task != task:
        raise InputError(
            f"model.kind = {config.model.kind!r} is for {kind.task}, but data.name = {config.data.name!r} is {task}; "
            f"choose one of: {', '.join(k for k, i in MODELS.items() if i.task == task)}"
        )
    if kind.classes is not None and classes != kind.classes:
        needed = "two" if kind.classes == 2 else str(kind.classes)
        others = [name for name, other in MODELS.items() if other.task == task and other.classes is None]
        raise InputError(
            f"model.kind = {config.model.kind!r} needs {needed} classes, the data has {classes}; choose "
            f"{' or '.join(map(repr, others))}"
        )
    return _model(Frozen(config.model), features, classes)


@lru_cache(maxsize=16)
def _model(settings: Frozen, features: int, classes: int) -> Model:
    kind = settings.value.kind
    return checked_build("model.kind", kind, MODELS.find(kind).build, Model, features, classes, settings.value)


def build_program(config: Config, model: Model, prepared: Model | None = None) -> ClientProgram:
    """Build the program of a client. It depends on the config, and not on the data of other clients.

    Args:
        config: The config of the run.
        model: The model that the method is built for. Runs that differ only in how rows are prepared share it.
        prepared: The same model with the preparation of rows that this run needs.

    Returns:
        The client's program.
    """
    selection = config.selection
    return ClientProgram(
        prepared or model,
        build_method(config, model),
        build_scheme(config),
        seed=config.seed,
        batch_size=config.algorithm.batch_size,
        report_rows=selection.report_rows if isinstance(selection, ReportingSettings) else 0,
        schedule=SCHEDULES[config.algorithm.schedule](config.rounds),
        wire=build_wire(config, model),
        metrics=build_metrics(config),
        guard=Guard(config.privacy)
        if config.privacy.on
        else None,  # without a secret, which only the process with the rows has
    )


def build_metrics(config: Config) -> tuple[Metric, ...]:
    """The built-in metrics, and the further metrics that the config names."""
    fitted = ["temperature"] if config.evaluate.temperature == "fit" else []
    return choose_metrics([*config.evaluate.metrics, *fitted])


def build_wire(config: Config, model: Model) -> Wire:
    """Build the codecs of the run's messages."""
    columns = [0] * len(model.widths)
    if model.input_block is not None and model.features and not model.widths[model.input_block] % model.features:
        columns[model.input_block] = model.features
    return Wire(
        {kind: CODECS.find(config.channel.codec_of(kind)) for kind in KINDS},
        config.seed,
        config.engine.precision,
        tuple(zip(model.widths, columns, strict=True)),
        build_site(config, model).natural,
        config.channel.packing,
    )


def build_method(config: Config, model: Model) -> Method:
    """Build the method of the config. Equal settings on the same model give the same object, which compiles once."""
    return _method(model, Frozen(config.algorithm), Frozen(config.sites), Frozen(config.privacy), Frozen(config.robust))


@lru_cache(maxsize=16)
def _method(model: Model, settings: Frozen, site_settings: Frozen, privacy: Frozen, robust: Frozen) -> Method:
    if privacy.value.on and settings.value.kind == "pvi":
        return private_pvi(model, _site(model, settings, site_settings), settings.value, privacy.value)
    if privacy.value.on:
        build_private = private_sites if site_settings.value.structure == "full" else private_networks
        return build_private(model, _site(model, settings, site_settings), settings.value, privacy.value)
    kind, site = settings.value.kind, _site(model, settings, site_settings)
    build = METHODS.find(kind).build
    found: Method = checked_build("algorithm.kind", kind, build, Method, model, site, settings.value)
    return found if robust.value.kind == "none" else robust_sites(found, robust.value)


def build_site(config: Config, model: Model) -> Site:
    """The sites of the method that ``build_method`` returns."""
    return _site(model, Frozen(config.algorithm), Frozen(config.sites))


@lru_cache(maxsize=16)
def _site(model: Model, settings: Frozen, site_settings: Frozen) -> Site:
    kind = site_settings.value.kind
    return checked_build("sites.kind", kind, SITES.find(kind).build, Site, model, site_settings.value, settings.value)


def build_scheme(config: Config) -> Scheme:
    """The selection scheme of the config, for the clients that are not barred."""
    kernel = getattr(config.algorithm, "kernel", "rbf")
    # Round robin visits clients equally often by itself, and its order must not change.
    limit = (
        (config.privacy.visits, config.rounds) if config.privacy.on and config.selection.kind != "round_robin" else None
    )
    barred = tuple(sorted(barred_from(config)))
    return _scheme(Frozen(config.selection), kernel, barred, config.robust.rest, limit)


@lru_cache(maxsize=16)
def _scheme(settings: Frozen, kernel: str, barred: tuple[int, ...], rest: int, limit: tuple[int, int] | None) -> Scheme:
    kind = settings.value.kind
    build, used = SCHEMES.find(kind).build, KERNELS.find(kernel)
    scheme: Scheme = resting(checked_build("selection.kind", kind, build, Scheme, settings.value, used), rest)
    if limit is not None:
        scheme = within_visits(scheme, *limit, settings.value.per_round)
    return without(scheme, barred)


class Frozen:
    """Settings as a key of a cache: equal settings of one class have the same key."""

    def __init__(self, value: Any):
        self.value, self._key = value, (type(value), value.model_dump_json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def structure_of(config: Config) -> str:
    """The structure of curvature sites; empty for sites of another kind."""
    return getattr(config.sites, "structure", "")


def refuse_too_large(config: Config, model: Model) -> None:
    """Refuse a run that the machine's memory cannot hold.

    A step holds about ten arrays like the particles, and every client that has trained leaves its state behind.

    Raises:
        InputError: More memory is needed than the machine has.
    """
    available, width = memory() or 2**40, 8 if config.engine.precision == "float64" else 4
    particles = jax.ShapeDtypeStruct((config.algorithm.particles, model.dim), np.dtype(np.float32))
    state = jax.eval_shape(build_site(config, model).init, particles)
    numbers = sum(math.prod(array.shape) for array in state.values())
    everybody, budget = config.partition.clients * numbers * width, config.engine.budget << 20
    sites = 4 * numbers * width + (min(everybody, budget) if budget else everybody)  # the others are in files
    if sites > available:
        structure = f" ({structure_of(config)})" if structure_of(config) else ""
        raise InputError(
            f"sites.kind = {config.sites.kind!r}{structure} with {config.partition.clients} clients and {model.dim} "
            f"parameters needs up to {sites / 1e9:.0f} GB, the machine has {available / 1e9:.0f}; take a smaller "
            "engine.budget, fewer particles or a smaller model"
        )
    needed = 10 * config.algorithm.particles * model.dim * width
    if needed > available:
        raise InputError(
            f"algorithm.particles = {config.algorithm.particles} with {model.dim} parameters each needs about "
            f"{needed / 1e9:.0f} GB, the machine has {available / 1e9:.0f}; take fewer particles or a smaller "
            "model.hidden"
        )


def program_in(config: Config, model: Model, basis: Rotation | None) -> ClientProgram:
    """Build the program of a client, with its inputs rotated if there is a basis.

    The method is built for the model without the preparation of rows, so that runs with other bases share it.
    """
    prepared = model if basis is None else model._replace(prepare=partial(prepare_rotated, basis, model.prepare))
    return build_program(config, model, prepared)


def prepare_rotated(basis: Rotation, prepare: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    return rotate(basis, prepare(x))


def build_evaluation(config: Config, model: Model, engine: Engine, dataset: data.Dataset) -> Evaluate:
    """Build the evaluation: by the server on the dataset's test rows, by the clients on their own rows, or none."""
    if config.evaluate.where == "clients":
        barred = barred_from(config)
        return ClientEvaluation(engine, dataset.task, dataset.target_scale, barred, build_metrics(config))
    if not len(dataset.test_x):
        return unmeasured
    return Evaluation(model, dataset, build_metrics(config))


def round_context(config: Config, program: ClientProgram, engine: Engine, evaluate: Evaluate) -> RoundContext:
    """Build the objects and settings that every round of the run uses."""
    selection = config.selection
    asking = selection if isinstance(selection, ReportingSettings) else None
    return RoundContext(
        program=program,
        engine=engine,
        channel=Channel(program.wire),
        evaluate=evaluate,
        seed=config.seed,
        rounds=config.rounds,
        per_round=selection.per_round,
        pool=asking.pool if asking else 0,
        evaluate_every=config.evaluate.every,
        join=config.evaluate.join,
        total_every=config.checkpoint.every,
        budget=config.engine.budget << 20,
        renew=bool(getattr(config.sites, "renew", False)),
        max_ratio=asking.max_ratio if asking else 0.0,
        speculate=asking.speculate if asking else 0,
        barred=barred_from(config),
    )


def conclude(method: Method, server: Mapping[str, Any], on_block: OnBlock | None = None) -> Conclusion:
    """Return the method's result, computed from the server's state after the last round."""
    if method.conclude is None:
        return Conclusion(dict(server))
    return method.conclude(dict(server), on_block)


def selected_counts(records: Sequence[Mapping[str, Any]], clients: int) -> list[int]:
    """How often each client was selected."""
    counts = np.zeros(clients, int)
    for record in records:
        for client in record["selected"]:
            counts[client] += 1
    return counts.tolist()
