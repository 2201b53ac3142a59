"""Dividing a dataset among clients, and preparing a run from a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedstein import data
from fedstein.data.basis import Rotation, find_basis, inputs_of, moments, restore_particles
from fedstein.data.holdout import Share, split_client
from fedstein.data.label_noise import with_wrong_labels
from fedstein.data.lazy import Lazy, Recent
from fedstein.data.partition_kinds import given_names, share_rows
from fedstein.data.passed_dataset import rows_by_client
from fedstein.data.shard import Shard
from fedstein.errors import InputError
from fedstein.federation.client import ClientProgram
from fedstein.federation.engine import Engine
from fedstein.federation.evaluation import Evaluate
from fedstein.federation.local import LocalEngine
from fedstein.federation.round_context import RoundContext
from fedstein.inference.methods import METHODS
from fedstein.models import MODELS, Model, check_model
from fedstein.models.checks import DENSE
from fedstein.privacy.guard import Guard
from fedstein.privacy.noise import seed_secret
from fedstein.runs.build import build_evaluation, build_model, program_in, refuse_too_large, round_context, structure_of
from fedstein.runs.config import Config
from fedstein.runs.config_sources import with_file_name
from fedstein.runs.defaults import Facts
from fedstein.runs.jax_setup import release_programs
from fedstein.runs.suitability import refuse_unsuitable

Rows = tuple[np.ndarray, np.ndarray]  # x and y


class Federation(NamedTuple):
    """Clients with their rows and their program."""

    model: Model  # the model that clients use: its inputs are rotated if there is a basis
    program: ClientProgram
    engine: Engine
    basis: Rotation | None

    def particles(self, server: Mapping[str, Any]) -> np.ndarray:
        """The posterior's particles in the model's own coordinates.

        Args:
            server: The state of the server.

        Returns:
            N x d particles.
        """
        found = np.asarray(self.program.method.posterior(dict(server)))
        if self.basis is None or self.model.input_block is None:
            return found
        return restore_particles(self.basis, found, self.model.widths, self.model.input_block)


class PreparedRun(NamedTuple):
    """A run that is ready to start."""

    config: Config
    dataset: data.Dataset
    context: RoundContext
    federation: Federation
    evaluation: Evaluate

    @property
    def engine(self) -> Engine:
        return self.federation.engine

    def posterior(self, server: Mapping[str, Any]) -> Any:
        """The points whose predictions are averaged, N x d, in the coordinates that clients use."""
        return self.federation.program.method.posterior(dict(server))


def load_dataset(raw: Mapping[str, Any]) -> data.Dataset:
    """Load the dataset that ``[data]`` of a raw or resolved config names, with targets in the form of its model."""
    settings = with_file_name(raw).get("data", {})
    name = settings.get("name", "covertype")
    keys = data.DATASETS[name].keys if name in data.DATASETS else ()
    dataset = data.load(name, task_of_model(raw), **{key: settings[key] for key in keys if key in settings})
    return data.with_counts(dataset) if dataset.task == "regression" and expects_counts(raw) else dataset


def task_of_model(raw: Mapping[str, Any]) -> str | None:
    """The task of the model that a raw or resolved config names; None if it names none."""
    section = raw.get("model")
    kind = section.get("kind") if isinstance(section, Mapping) else None
    return MODELS[kind].task if isinstance(kind, str) and kind in MODELS else None


def expects_counts(raw: Mapping[str, Any]) -> bool:
    """Whether the model that a raw or resolved config names is a model of counts. The default models are not."""
    section = raw.get("model")
    kind = section.get("kind") if isinstance(section, Mapping) else None
    return isinstance(kind, str) and kind in MODELS and MODELS[kind].traits.target == "count"


def facts_of(dataset: data.Dataset) -> Facts:
    names = len(dataset.client_names)
    return Facts(dataset.task, dataset.classes, names, features=dataset.train_x.shape[1])


def was_passed(config: Config) -> bool:
    """Tell whether the rows of a run were passed to ``fedstein.fit`` and do not come from a dataset."""
    return config.data.name == "file" and config.data.path is None


def split_rows(config: Config, dataset: data.Dataset) -> list[np.ndarray]:
    """The rows of each client, as row numbers into the dataset's training rows."""
    if was_passed(config):
        return [np.flatnonzero(dataset.client_of_row == k) for k in range(len(dataset.client_names))]
    return share_rows(dataset, config.partition, config.seed)


def with_label_noise(config: Config, dataset: data.Dataset) -> data.Dataset:
    """Return the dataset with the clients' training labels: ``partition.flip`` makes some of them wrong on purpose.

    Raises:
        InputError: ``partition.flip`` is set for a regression, or names a client that does not exist.
    """
    given = config.partition
    if given.flip == 0.0:
        return dataset
    return with_wrong_labels(dataset, split_rows(config, dataset), given.flip, given.flip_clients, config.seed)


def client_rows(config: Config, dataset: data.Dataset) -> Sequence[Rows]:
    """Return every client's rows, including those that it will hold out for evaluation."""
    dataset = with_label_noise(config, dataset)
    if was_passed(config):
        return rows_by_client(dataset)
    indices = split_rows(config, dataset)
    return Lazy(len(indices), lambda k: (dataset.train_x[indices[k]], dataset.train_y[indices[k]]))


def client_names(config: Config, dataset: data.Dataset) -> Sequence[str] | None:
    """Return the names that the data gives its clients, if it names them."""
    return given_names(dataset, config.partition, config.seed)


def federate(
    config: Config,
    model: Model,
    clients: Sequence[Rows],
    names: Sequence[str] | None = None,
    basis: Rotation | None = None,
) -> Federation:
    """Build the clients of a run in this process. If a basis is needed and not given, it is computed here.

    Held-out rows are separated first, so neither training nor the basis depends on them.
    """
    release_programs()
    shares: Sequence[Share] = Lazy(len(clients), lambda k: split_client(*clients[k], config.evaluate.fraction))
    there = [client for client in range(len(shares)) if client not in (config.selection.barred or ())]
    present: Sequence[Share] = Lazy(len(there), lambda i: shares[there[i]])
    refuse_no_held_out_rows(config, present)
    refuse_unsuitable(config, model, present)
    if METHODS.find(config.algorithm.kind).pooled:
        shares = present = [Share(*(np.concatenate(arrays) for arrays in zip(*present, strict=True)))]
        names = ["everybody"]
    if structure_of(config) == "eigen":
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

            basis = find_basis(total, columns, getattr(config.sites, "rank", 0) or 0, config.seed)
    return build_federation(config, model, shares, names, basis)


def refuse_no_held_out_rows(config: Config, shares: Sequence[Share]) -> None:
    """Refuse evaluation by the clients if no client has held-out rows."""
    if config.evaluate.where == "clients" and not any(len(share.held_x) for share in shares):
        raise InputError(
            "evaluate.where = 'clients' needs a client with two rows or more, and every client has one; set it to "
            "'server'"
        )


def refuse_no_inputs(model: Model) -> None:
    """Refuse ``eigen`` sites, which rotate the inputs, for a model without a layer that multiplies the inputs."""
    if model.input_block is None:
        raise InputError(
            f"sites.structure = 'eigen' needs a layer that multiplies the inputs, and model {model.name!r} has "
            "none (input_block); use 'diagonal' or 'full'"
        )


def build_federation(
    config: Config,
    model: Model,
    shares: Sequence[Share],
    names: Sequence[str] | None = None,
    basis: Rotation | None = None,
) -> Federation:
    """Build a federation from its parts. Without clients it is only the server, which needs no rows."""
    used = basis if structure_of(config) == "eigen" else None
    program = program_in(config, model, used)
    by_clients = config.evaluate.where == "clients"
    held = [program.held_out(share.held_x, share.held_y) for share in shares] if by_clients else []
    budget = config.engine.budget << 20

    def make(client: int) -> Shard:
        share = shares[client]
        return program.shard(share.x, share.y)

    shards = Recent(len(shares), make, bytes_of, budget)
    if program.guard is not None:
        own = Path(config.privacy.ledger).expanduser() if config.privacy.ledger else None
        program.guard = Guard(config.privacy, seed_secret(config.seed), folder=own)
    engine = LocalEngine(program, shards, names, held, [len(share.y) for share in shares])
    return Federation(program.model, program, engine, used)


def bytes_of(shard: Shard) -> int:
    """Return the bytes of a shard on the device."""
    return int(shard.x.nbytes) + int(shard.y.nbytes)


def prepare_run(
    config: Config,
    dataset: data.Dataset,
    basis: Rotation | None = None,
    clients: Sequence[Rows] | None = None,
    model: Model | None = None,
) -> PreparedRun:
    """Prepare a run in which this process plays every client.

    Args:
        config: The config of the run.
        dataset: Its rows.
        basis: The basis of the inputs, if a resumed run has one.
        clients: The clients' rows; None uses the config's partition.
        model: A model of the user's own; None uses the model that the config names.

    Returns:
        The run, ready to start.

    Raises:
        InputError: Parts or rows do not fit together, or the functions of a model from a plug-in contradict each other
            (``fedstein.models.check_model``).
    """
    model = model or build_model(config, dataset.train_x.shape[1], dataset.classes, dataset.task)
    refuse_too_large(config, model)
    if model.target == "count":
        dataset = data.with_counts(dataset)
    if MODELS.plugin_path(config.model.kind) is not None:
        check_model(model, dataset.train_x, dataset.train_y, thorough=model.dim <= DENSE)
    rows = client_rows(config, dataset) if clients is None else clients
    federation = federate(config, model, rows, client_names(config, dataset), basis)
    evaluation = build_evaluation(config, federation.model, federation.engine, dataset)
    context = round_context(config, federation.program, federation.engine, evaluation)
    return PreparedRun(config, dataset, context, federation, evaluation)
