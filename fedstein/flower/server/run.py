"""A run over nodes: wait for them, set them up, then run the same rounds as in process, with the same run folder."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedstein import data
from fedstein.data.basis import Rotation, find_basis
from fedstein.data.node_schema import is_open
from fedstein.data.scaling import add, mean_from, scale_from, sum_shapes
from fedstein.errors import InputError
from fedstein.federation.engine import FlowerEngineSettings
from fedstein.files import disk_errors, read_json, write_json
from fedstein.flower.messages import Shapes
from fedstein.flower.server.columns import find_columns
from fedstein.flower.server.engine import FlowerEngine
from fedstein.flower.server.events import Events
from fedstein.flower.server.membership import Membership, lifetime
from fedstein.flower.server.requests import Requests
from fedstein.flower.server.secure_sums import secure_total
from fedstein.flower.server.transport import Transport
from fedstein.inference.methods import METHODS
from fedstein.inference.sites.base import Arrays
from fedstein.models import Model
from fedstein.runs import runner
from fedstein.runs.build import build_evaluation, build_model, program_in, refuse_too_large, round_context, structure_of
from fedstein.runs.config import Config, resolve
from fedstein.runs.federate import Federation, PreparedRun, facts_of, load_dataset, refuse_no_inputs
from fedstein.runs.folder import RunFolder, refuse_used
from fedstein.runs.jax_setup import start_jax
from fedstein.runs.secure_checks import sums_are_secure
from fedstein.runs.suitability import refuse_cut

OnRound = Callable[[Mapping[str, Any]], None]


def run_over(
    transport: Transport, raw: Mapping[str, Any], out: Path, events: Events, on_round: OnRound
) -> dict[str, Any]:
    """Start a run over nodes, or continue the unfinished run in ``out``.

    Args:
        transport: The connection to the nodes.
        raw: The nested config.
        out: The run folder.
        events: The log.
        on_round: A function that is called with the record of each round.

    Returns:
        The summary of the run.

    Raises:
        FedsteinError: The run cannot start or continue; the text says why.
    """
    raw = {**raw, "engine": {**raw.get("engine", {}), "kind": "flower"}}
    if (out / "config.toml").exists():
        return continue_run(transport, raw, out, events, on_round)
    refuse_used(out)
    dataset = load_dataset(raw)
    config, notes = resolve(raw, facts_of(dataset))
    for note in notes:
        events.note("note", reason=note)
    start_jax(config)
    there = config.partition.clients
    if config.data.name == "nodes" and is_open(config.data.categories, config.data.missing, config.data.fill):
        found = find_columns(transport, config, events, uuid.uuid4().hex)
        raw, there = {**raw, "data": {**raw["data"], **found.keys}}, found.clients
        dataset = load_dataset(raw)
        config, _ = resolve(raw, facts_of(dataset))
    prepared, membership = prepare_over(transport, config, dataset, events, uuid.uuid4().hex, there=there)

    def begun(folder: RunFolder) -> None:
        keep_records(folder, events, membership)

    return runner.start(prepared, out, on_round, begun, on_pass=partial(note_pass, events))


def continue_run(
    transport: Transport, raw: Mapping[str, Any], out: Path, events: Events, on_round: OnRound
) -> dict[str, Any]:
    """Continue the unfinished run in ``out``, with the config of its folder.

    Args:
        transport: The connection to the nodes.
        raw: The nested config. Only the settings of how long to wait for clients are used.
        out: The run folder.
        events: The log.
        on_round: A function that is called with the record of each round.

    Returns:
        The summary of the run.

    Raises:
        FedsteinError: The folder has no such run, or the run cannot continue; the text says why.
    """
    folder, config = runner.open_run(out)
    if config.engine.kind != "flower":
        raise InputError(f"{out} is a run in process; continue it with: fedstein resume {out}")
    given = {
        key: entry for key, entry in raw["engine"].items() if key not in ("kind", "threads", "precision", "device")
    }
    config = config.model_copy(update={"engine": config.engine.model_copy(update=given)})
    if config.data.name == "nodes" and config.data.categories is None:  # a run of an earlier version
        config = config.model_copy(update={"data": config.data.model_copy(update={"categories": {}})})
    start_jax(config)

    def prepare_again(folder: RunFolder, config: Config) -> PreparedRun:
        dataset = folder.dataset(config)
        manifest = folder.checkpoint / "manifest.json"
        memory = dict(read_json(manifest, "a checkpoint").get("engine") or {}) if manifest.exists() else {}
        run = str(memory.get("run") or uuid.uuid4().hex)
        prepared, membership = prepare_over(transport, config, dataset, events, run, memory, folder.read_basis(config))
        keep_records(folder, events, membership)
        return prepared

    def announce(done: int, changes: list[str]) -> None:
        events.note("continuing", number=done + 1, changed=changes)

    return runner.resume(folder, config, announce, on_round, prepare_again, on_pass=partial(note_pass, events))


def note_pass(events: Events, line: str) -> None:
    """Log what the passes after the last round say, during which nodes are asked although there is no round."""
    events.note("after the rounds", reason=line)


def keep_records(folder: RunFolder, events: Events, membership: Membership) -> None:
    """Write events to the run folder from now on, and ``clients.json`` whenever a client joins.

    Args:
        folder: The run folder.
        events: The log.
        membership: The clients of the run.
    """
    events.open(folder.path / "events.jsonl")

    def write_clients() -> None:
        with disk_errors(folder.path):
            write_json(folder.path / "clients.json", [info._asdict() for info in membership.infos])

    membership.on_join = write_clients
    write_clients()


def prepare_over(
    transport: Transport,
    config: Config,
    dataset: data.Dataset,
    events: Events,
    run: str,
    memory: Mapping[str, Any] | None = None,
    basis: Rotation | None = None,
    there: int | None = None,
) -> tuple[PreparedRun, Membership]:
    """Wait for the nodes, set them up, and prepare the rounds.

    Args:
        transport: The connection to the nodes.
        config: The config of the run.
        dataset: What the server knows about the data. In a resumed run, its test rows are already scaled.
        events: The log.
        run: The id of the run.
        memory: The state of the engine before the resume; None for a new run.
        basis: The basis of the inputs, if a resumed run has one.
        there: How many clients had joined when the columns were counted. The start does not wait again for more.

    Returns:
        The run, ready to start, and its clients.

    Raises:
        FedsteinError: Too few nodes connected, or the config does not work over nodes.
    """
    if METHODS.find(config.algorithm.kind).pooled:
        raise InputError(
            f"algorithm.kind = {config.algorithm.kind!r} needs everybody's rows in one place; use fedstein run for it"
        )
    model = build_model(config, dataset.train_x.shape[1], dataset.classes, dataset.task)
    refuse_too_large(config, model)
    settings, text = config.engine, config.to_toml()
    assert isinstance(settings, FlowerEngineSettings)
    membership = Membership(transport, run, text, config.partition.clients, events, lifetime(settings))
    membership.recall(dict(memory or {}))
    membership.gather(settings.start_timeout, settings.on_missing == "wait", there)
    for info in membership.infos:
        refuse_cut(config, model, info.name, info.rows)
    requests = Requests(transport, membership, settings, run, text, events)
    inputs, known = dataset.train_x.shape[1], memory is not None
    if config.data.name == "nodes" and config.data.standardize:
        if not known:
            scaling = federated_scaling(requests, config, dataset)
            if model.target == "count":
                scaling = scaling._replace(target_mean=0.0, target_scale=1.0)
            dataset = data.with_scaling(dataset, scaling)
        requests.use_setup(scaling_arrays(dataset), known)
    if structure_of(config) == "eigen":
        refuse_no_inputs(model)
        basis = basis or federated_basis(requests, config, model, inputs)
        requests.use_setup({**requests.setup, **{name: np.asarray(array) for name, array in basis.items()}}, known)
    program = program_in(config, model, basis)
    engine = FlowerEngine(requests, program, inputs, secure=sums_are_secure(config))
    evaluation = build_evaluation(config, program.model, engine, dataset)
    federation = Federation(program.model, program, engine, basis)
    context = round_context(config, program, engine, evaluation)
    return PreparedRun(config, dataset, context, federation, evaluation), membership


def participants(requests: Requests, config: Config) -> list[int]:
    """The ids of the clients that have joined and are not barred."""
    barred = config.selection.barred or ()
    return [info.id for info in requests.membership.infos if info.rows and info.id not in barred]


def federated_scaling(requests: Requests, config: Config, dataset: data.Dataset) -> data.Scaling:
    """Find mean and scale of every column from sums over the clients' training rows.

    Args:
        requests: The requests to clients.
        config: The config of the run.
        dataset: What the server knows about the data: the columns and the task.

    Returns:
        Mean and scale of each column, and of the target in a regression.

    Raises:
        FedsteinError: No client answered.
    """
    present, (first, second) = participants(requests, config), sum_shapes(len(dataset.feature_names), dataset.task)
    if sums_are_secure(config):
        total, inside = secure_total(requests, "scale", 0, present, {}, first)
        again, _ = secure_total(requests, "scale", 0, inside, mean_from(total), second)
        return scale_from(sums_about_means(total, again), again)
    while True:
        before = requests.summands("scale", present, {}, first)
        total = add(before.values())
        after = requests.summands("scale", list(before), mean_from(total), second)
        if len(after) == len(before):
            return scale_from(total, add(after.values()))
        present = list(after)  # both passes must be over the same rows, so both are repeated


def sums_about_means(total: Arrays, again: Arrays) -> Arrays:
    """Replace the sums of the first pass by sums over the rows of the second pass that have the same means.

    A client may have dropped out in between. The second pass measures distances from these means, and the formulas hold
    for any such point. So clients are not asked for the first pass again: two sums that differ by one client would
    reveal the sum of this client.
    """
    means, count = mean_from(total), again["count"]
    named = {"sum": "mean", "target_sum": "target_mean"}
    sums = {name: means[named[name]] * count if name in named else array for name, array in total.items()}
    return {**sums, "count": count}


def scaling_arrays(dataset: data.Dataset) -> Arrays:
    """Return the arrays that a node needs to scale its rows."""
    target = np.array([dataset.target_mean, dataset.target_scale])
    return {"mean": dataset.mean, "scale": dataset.scale, "target": target}


def federated_basis(requests: Requests, config: Config, model: Model, inputs: int) -> Rotation:
    """Find the basis of the inputs: the eigenvectors of the clients' summed second moments.

    The server uses only the sums.

    Args:
        requests: The requests to clients.
        config: The config of the run.
        model: The model. Its preparation of rows decides the size of the matrix of moments.
        inputs: The number of columns of a client's rows.

    Returns:
        The basis.

    Raises:
        FedsteinError: No client answered.
    """
    width = model.prepare(np.zeros((1, inputs), np.float32)).shape[1]
    present = participants(requests, config)

    def total(probe: np.ndarray | None) -> np.ndarray:
        shape = (width, width if probe is None else probe.shape[1])
        arrays = {} if probe is None else {"probe": probe}
        if sums_are_secure(config):
            form: Shapes = {"moments": (shape, "float64")}
            return secure_total(requests, "sums", 0, present, arrays, form)[0]["moments"]
        return add(requests.summands("sums", present, arrays, {"moments": (shape, "float64")}).values())["moments"]

    return find_basis(total, width, getattr(config.sites, "rank", 0) or 0, config.seed)
