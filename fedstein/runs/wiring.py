"""Names become objects: the one place that knows them all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedstein import data
from fedstein.algorithms import ALGORITHMS, Algorithm
from fedstein.basis import Rotation, find_basis, inputs_of, moments, restore_particles, rotate
from fedstein.client import ClientProgram
from fedstein.engines.base import Engine
from fedstein.engines.local import LocalEngine
from fedstein.errors import InputError
from fedstein.evaluation import ClientEvaluation, Evaluate, Evaluation
from fedstein.holdout import Share, share_out
from fedstein.lazy import Lazy, Recent
from fedstein.machine import memory
from fedstein.models import MODELS, Model
from fedstein.protocol import Parts, RunState
from fedstein.runs.config import Config
from fedstein.runs.defaults import Facts
from fedstein.schedule import SCHEDULES
from fedstein.selection import SCHEMES, Scheme
from fedstein.selection.barred import without
from fedstein.shard import Shard
from fedstein.sites import SITES, Site
from fedstein.sites.gaussian import SiteGaussian, site_gaussian
from fedstein.sites.settle import OnBlock, Settled, settle
from fedstein.stein.adagrad import AdaGrad

Rows = tuple[np.ndarray, np.ndarray]  # x and y


class Federation(NamedTuple):
    """Clients with their rows, and what they compute."""

    model: Model  # as the clients use it: with rotated inputs where there is a basis
    program: ClientProgram
    engine: Engine
    basis: Rotation | None

    def particles(self, state: RunState) -> np.ndarray:
        """The posterior's particles in the model's own coordinates."""
        found = np.asarray(state.server["particles"])
        if self.basis is None or self.model.input_block is None:
            return found
        return restore_particles(self.basis, found, self.model.widths, self.model.input_block)


class Wired(NamedTuple):
    """A run that is ready to start."""

    config: Config
    dataset: data.Dataset
    parts: Parts
    federation: Federation
    evaluation: Evaluate

    @property
    def engine(self) -> Engine:
        return self.federation.engine


def load_dataset(raw: Mapping[str, Any]) -> data.Dataset:
    """The dataset that the ``[data]`` of a raw or resolved config names."""
    settings = raw.get("data", {})
    name = settings.get("name", "covertype")
    keys = data.DATASETS[name].keys if name in data.DATASETS else ()
    return data.load(name, **{key: settings[key] for key in keys if key in settings})


def facts_of(dataset: data.Dataset) -> Facts:
    return Facts(dataset.task, dataset.classes, len(dataset.client_names))


def split_rows(config: Config, dataset: data.Dataset) -> list[np.ndarray]:
    """The rows of each client, as numbers of the dataset's training rows."""
    settings = config.partition.model_dump(exclude_none=True)
    return data.partition(dataset, settings.pop("kind"), seed=config.seed, **settings)


def client_rows(config: Config, dataset: data.Dataset) -> Sequence[Rows]:
    """Every client's rows; what it holds out to evaluate on is still among them."""
    indices = split_rows(config, dataset)
    return Lazy(len(indices), lambda k: (dataset.train_x[indices[k]], dataset.train_y[indices[k]]))


def client_names(config: Config, dataset: data.Dataset) -> Sequence[str] | None:
    """What the data itself calls its clients, where they are its own."""
    return dataset.client_names if config.partition.kind == "given" else None


def barred_from(config: Config) -> frozenset[int]:
    """Clients that take no part. Where one client holds everybody's rows theirs are left out beforehand."""
    return frozenset(() if ALGORITHMS[config.algorithm.kind].pooled else config.selection.barred or ())


def build_model(config: Config, features: int, classes: int, task: str) -> Model:
    """The model of the config for rows of that many features."""
    info = MODELS[config.model.kind]
    if info.task != task:
        raise InputError(
            f"model.kind = {config.model.kind!r} is for {info.task}, but data.name = {config.data.name!r} is {task}; "
            f"choose one of: {', '.join(k for k, i in MODELS.items() if i.task == task)}"
        )
    if config.model.kind == "blr" and classes != 2:
        raise InputError(f"model.kind = 'blr' needs two classes, the data has {classes}; choose 'bnn_classifier'")
    return _model(config.model.model_dump_json(exclude_none=True), features, classes)


@lru_cache(maxsize=16)
def _model(settings: str, features: int, classes: int) -> Model:
    given = json.loads(settings)
    return MODELS[given.pop("kind")].build(features, classes, **given)


def build_program(config: Config, model: Model, prepared: Model | None = None) -> ClientProgram:
    """What a client computes; it needs the config and nothing of the others' data."""
    algorithm, scheme = build_algorithm(config, model), build_scheme(config)
    rows = config.selection.report_rows or 0
    size = config.algorithm.batch_size
    schedule = SCHEDULES[config.algorithm.schedule](config.rounds)
    return ClientProgram(
        prepared or model, algorithm, scheme, seed=config.seed, batch_size=size, rows=rows, schedule=schedule
    )


def build_algorithm(config: Config, model: Model) -> Algorithm:
    """Equal settings on the same model give the same object, so that several runs in a process compile once."""
    return _algorithm(model, config.algorithm.model_dump_json(), config.sites.model_dump_json())


@lru_cache(maxsize=16)
def _algorithm(model: Model, algorithm_settings: str, site_settings: str) -> Algorithm:
    settings, site_only = given_keys(algorithm_settings), given_keys(site_settings)
    site_only.pop("kind")
    optimiser = AdaGrad(settings["step_size"], settings.get("epsilon", 0.0))
    site = _site(model, algorithm_settings, site_settings)
    return ALGORITHMS[settings["kind"]].build(
        model,
        site,
        particles=settings["particles"],
        steps=settings["local_steps"],
        batch_size=settings["batch_size"],
        temperature=settings["temperature"],
        optimiser=optimiser,
        **({"prior": settings["prior"], **site_only} if "prior" in settings else {}),
    )


def build_site(config: Config, model: Model) -> Site:
    """The sites of the algorithm that ``build_algorithm`` gives."""
    return _site(model, config.algorithm.model_dump_json(), config.sites.model_dump_json())


@lru_cache(maxsize=16)
def _site(model: Model, algorithm_settings: str, site_settings: str) -> Site:
    settings, own = given_keys(algorithm_settings), given_keys(site_settings)
    info = SITES[own.pop("kind")]
    optimiser = AdaGrad(settings["step_size"], settings.get("epsilon", 0.0))
    needed = {**settings, "steps": settings.get("distill_steps"), "optimiser": optimiser}
    for elsewhere in ("rank", "renew", "settle"):  # what happens outside the clients
        own.pop(elsewhere, None)
    return info.build(model, **{name: needed[name] for name in info.needs}, **own)


def given_keys(settings: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(settings).items() if value is not None}


def build_scheme(config: Config) -> Scheme:
    chosen = config.selection
    given = {"order": chosen.order, "draw": chosen.draw, "max_probability": chosen.max_probability}
    settings = tuple((name, value) for name, value in given.items() if value is not None)
    return _scheme(chosen.kind, settings, tuple(sorted(barred_from(config))))


@lru_cache(maxsize=16)
def _scheme(kind: str, settings: tuple[tuple[str, Any], ...], barred: tuple[int, ...]) -> Scheme:
    return without(SCHEMES[kind].build(**dict(settings)), barred)


def refuse_too_large(config: Config, model: Model) -> None:
    """A step holds about ten arrays like the particles; more than the machine has cannot run."""
    available = memory() or 2**40
    needed = 10 * config.algorithm.particles * model.dim * (8 if config.engine.precision == "float64" else 4)
    if config.sites.kind == "curvature":  # a client that has trained leaves eta and Lambda behind
        numbers = model.dim**2 if config.sites.structure == "full" else 2 * config.algorithm.particles * model.dim
        everybody, budget = config.partition.clients * numbers * 4, config.engine.budget << 20
        sites = 4 * numbers * 4 + (min(everybody, budget) if budget else everybody)  # past the budget they are in files
        if sites > available:
            raise InputError(
                f"sites.kind = 'curvature' ({config.sites.structure}) with {config.partition.clients} clients and "
                f"{model.dim} parameters needs up to {sites / 1e9:.0f} GB, the machine has {available / 1e9:.0f}; take "
                "a smaller engine.budget, fewer particles or a smaller model"
            )
    if needed > available:
        raise InputError(
            f"algorithm.particles = {config.algorithm.particles} with {model.dim} parameters each needs about "
            f"{needed / 1e9:.0f} GB, the machine has {available / 1e9:.0f}; take fewer particles or a smaller "
            "model.hidden"
        )


def federate(
    config: Config,
    model: Model,
    clients: Sequence[Rows],
    names: Sequence[str] | None = None,
    basis: Rotation | None = None,
) -> Federation:
    """Clients in this process; ``basis`` is that of a run that goes on, else it is found here where one is needed.

    Held-out rows are set aside first, so nothing that is trained or found here depends on them.
    """
    shares: Sequence[Share] = Lazy(len(clients), lambda k: share_out(*clients[k], config.evaluate.fraction))
    there = [client for client in range(len(shares)) if client not in (config.selection.barred or ())]
    present: Sequence[Share] = Lazy(len(there), lambda i: shares[there[i]])
    refuse_nothing_held(config, present)
    if ALGORITHMS[config.algorithm.kind].pooled:
        shares = present = [Share(*(np.concatenate(arrays) for arrays in zip(*present, strict=True)))]
        names = ["everybody"]
    if config.sites.structure == "eigen":
        refuse_no_inputs(model)
        columns = model.prepare(present[0].x).shape[1]
        if basis is not None and inputs_of(basis) != columns:
            raise InputError(
                f"the basis of the inputs is for {inputs_of(basis)} columns, the rows have {columns}; "
                "restore the run's own basis.safetensors, or start anew in another folder"
            )
        if basis is None:

            def total(probe: np.ndarray | None) -> np.ndarray:
                return reduce(np.add, (moments(model.prepare(share.x), probe) for share in present))

            basis = find_basis(total, columns, config.sites.rank or 0, config.seed)
    return serve(config, model, shares, names, basis)


def refuse_nothing_held(config: Config, shares: Sequence[Share]) -> None:
    """Somebody must have rows to evaluate on."""
    if config.evaluate.where == "clients" and not any(len(share.held_x) for share in shares):
        raise InputError(
            "evaluate.where = 'clients' needs a client with two rows or more, and every client has one; set it to "
            "'server'"
        )


def refuse_no_inputs(model: Model) -> None:
    """``eigen`` rotates inputs; a model must have a layer that multiplies them."""
    if model.input_block is None:
        raise InputError(
            f"sites.structure = 'eigen' needs a layer that multiplies the inputs, and model {model.name!r} has "
            "none (input_block); use 'diagonal' or 'full'"
        )


def serve(
    config: Config,
    model: Model,
    shares: Sequence[Share],
    names: Sequence[str] | None = None,
    basis: Rotation | None = None,
) -> Federation:
    """``federate`` with everything found; without clients it is the server alone, which needs nobody's rows."""
    used = basis if config.sites.structure == "eigen" else None
    program = program_in(config, model, used)
    by_clients = config.evaluate.where == "clients"
    held = [program.held_out(share.held_x, share.held_y) for share in shares] if by_clients else []
    budget = config.engine.budget << 20

    def make(client: int) -> Shard:
        share = shares[client]
        return program.shard(share.x, share.y)

    shards = Recent(len(shares), make, bytes_of, budget)
    engine = LocalEngine(program, shards, names, held, [len(share.y) for share in shares], budget)
    return Federation(program.model, program, engine, used)


def bytes_of(shard: Shard) -> int:
    """What a shard takes on the device."""
    return int(shard.x.nbytes) + int(shard.y.nbytes)


def program_in(config: Config, model: Model, basis: Rotation | None) -> ClientProgram:
    """What a client computes, with its inputs rotated where there is a basis.

    The algorithm is built for the model without its rows' preparation, so that runs with other bases share it.
    """
    prepared = model if basis is None else model._replace(prepare=partial(prepare_rotated, basis, model.prepare))
    return build_program(config, model, prepared)


def prepare_rotated(basis: Rotation, prepare: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    return rotate(basis, prepare(x))


def wire(
    config: Config, dataset: data.Dataset, basis: Rotation | None = None, clients: Sequence[Rows] | None = None
) -> Wired:
    """Everything in process; ``clients`` are those of the config's partition unless they are given."""
    model = build_model(config, dataset.train_x.shape[1], dataset.classes, dataset.task)
    refuse_too_large(config, model)
    rows = client_rows(config, dataset) if clients is None else clients
    federation = federate(config, model, rows, client_names(config, dataset), basis)
    evaluation = build_evaluation(config, federation.model, federation.engine, dataset)
    parts = make_parts(config, federation.program, federation.engine, evaluation)
    return Wired(config, dataset, parts, federation, evaluation)


def build_evaluation(config: Config, model: Model, engine: Engine, dataset: data.Dataset) -> Evaluate:
    """By the server on the dataset's test rows, or by the clients on their own."""
    if config.evaluate.where == "clients":
        return ClientEvaluation(engine, dataset.task, dataset.target_scale, barred_from(config))
    return Evaluation(model, dataset)


def make_parts(config: Config, program: ClientProgram, engine: Engine, evaluate: Evaluate) -> Parts:
    return Parts(
        program=program,
        engine=engine,
        evaluate=evaluate,
        seed=config.seed,
        rounds=config.rounds,
        per_round=config.selection.per_round,
        pool=config.selection.pool or 0,
        evaluate_every=config.evaluate.every,
        total_every=config.checkpoint.every,
        renew=bool(config.sites.renew),
        max_ratio=config.selection.max_ratio or 0.0,
        barred=barred_from(config),
    )


def ignore(steps: int, to_go: float) -> None:
    """For settling that nobody watches."""


class Outcome(NamedTuple):
    """What the rounds of a run come to: particles to predict with and, from full sites, a Gaussian."""

    server: dict[str, Any]  # with the particles settled, where the config asks for it
    gaussian: SiteGaussian | None
    refused: str | None  # why there is no Gaussian although the sites are full
    settled: Settled | None


def outcome(config: Config, model: Model, server: Mapping[str, Any], on_block: OnBlock | None = None) -> Outcome:
    """``on_block`` asks for settling whatever the config says, and is told how it goes."""
    gaussian, refused, settled = None, None, None
    if config.sites.structure == "full":
        try:
            gaussian = site_gaussian(model, server, np.asarray(server["particles"], np.float64).mean(axis=0))
        except InputError as error:
            refused = str(error)
    if on_block is not None or (config.sites.settle and gaussian is not None):
        if refused is not None:
            raise InputError(refused)
        settled = settle(model, build_site(config, model), dict(server), gaussian, on_block=on_block or ignore)
        server = {**server, "particles": jnp.asarray(settled.particles)}
    return Outcome(dict(server), gaussian, refused, settled)


def selected_counts(records: Sequence[Mapping[str, Any]], clients: int) -> list[int]:
    """How often each client was selected."""
    counts = np.zeros(clients, int)
    for record in records:
        for client in record["selected"]:
            counts[client] += 1
    return counts.tolist()
