"""A run over nodes: gather them, set them up, then the same round loop and run folder as in process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedstein import data
from fedstein.algorithms import ALGORITHMS
from fedstein.basis import Rotation, find_basis
from fedstein.data.scaling import add, mean_from, scale_from, sum_shapes
from fedstein.engines.flower.engine import FlowerEngine
from fedstein.engines.flower.events import Events
from fedstein.engines.flower.office import Office
from fedstein.engines.flower.post import Post
from fedstein.engines.flower.roster import Roster
from fedstein.errors import InputError
from fedstein.models import Model
from fedstein.runs import runner
from fedstein.runs.config import Config, resolve
from fedstein.runs.files import disk_errors, read_json, write_json
from fedstein.runs.folder import RunFolder, refuse_used
from fedstein.runs.wiring import (
    Federation,
    Wired,
    build_evaluation,
    build_model,
    facts_of,
    load_dataset,
    make_parts,
    program_in,
    refuse_no_inputs,
    refuse_too_large,
)
from fedstein.sites.base import Arrays
from fedstein.start import start_jax

OnRound = Callable[[Mapping[str, Any]], None]


def run_over(post: Post, raw: Mapping[str, Any], out: Path, events: Events, on_round: OnRound) -> dict[str, Any]:
    """A new run, or one that goes on where ``out`` holds an unfinished one; returns the summary."""
    raw = {**raw, "engine": {**raw.get("engine", {}), "kind": "flower"}}
    if (out / "config.toml").exists():
        return go_on(post, raw, out, events, on_round)
    refuse_used(out)
    dataset = load_dataset(raw)
    config, notes = resolve(raw, facts_of(dataset))
    for note in notes:
        events.note("note", reason=note)
    start_jax(config)
    wired, roster = wire_over(post, config, dataset, events, uuid.uuid4().hex)

    def begun(folder: RunFolder) -> None:
        keep_records(folder, events, roster)

    return runner.start(wired, out, on_round, begun)


def go_on(post: Post, raw: Mapping[str, Any], out: Path, events: Events, on_round: OnRound) -> dict[str, Any]:
    """Resume; how long clients are waited for may be another than before, all else is the folder's own."""
    folder, config = runner.open_run(out)
    if config.engine.kind != "flower":
        raise InputError(f"{out} is a run in process; continue it with: fedstein resume {out}")
    given = {
        key: entry for key, entry in raw["engine"].items() if key not in ("kind", "threads", "precision", "device")
    }
    config = config.model_copy(update={"engine": config.engine.model_copy(update=given)})
    start_jax(config)

    def rewire(folder: RunFolder, config: Config) -> Wired:
        dataset = folder.dataset(config)
        manifest = folder.checkpoint / "manifest.json"
        memory = dict(read_json(manifest, "a checkpoint").get("engine") or {}) if manifest.exists() else {}
        run = str(memory.get("run") or uuid.uuid4().hex)
        wired, roster = wire_over(post, config, dataset, events, run, memory, folder.read_basis(config))
        keep_records(folder, events, roster)
        return wired

    def announce(done: int, changes: list[str]) -> None:
        events.note("continuing", number=done + 1, changed=changes)

    return runner.resume(folder, config, announce, on_round, rewire)


def keep_records(folder: RunFolder, events: Events, roster: Roster) -> None:
    """From now on events go to the folder, and ``clients.json`` knows of clients that join."""
    events.open(folder.path / "events.jsonl")

    def write_clients() -> None:
        with disk_errors(folder.path):
            write_json(folder.path / "clients.json", [info._asdict() for info in roster.infos])

    roster.on_join = write_clients
    write_clients()


def wire_over(
    post: Post,
    config: Config,
    dataset: data.Dataset,
    events: Events,
    run: str,
    memory: Mapping[str, Any] | None = None,
    basis: Rotation | None = None,
) -> tuple[Wired, Roster]:
    """Gather the nodes and set them up; ``memory`` and ``basis`` are those of a run that goes on.

    The dataset of such a run is scaled already where its rows are with the nodes.
    """
    if ALGORITHMS[config.algorithm.kind].pooled:
        raise InputError(
            f"algorithm.kind = {config.algorithm.kind!r} needs everybody's rows in one place; use fedstein run for it"
        )
    model = build_model(config, dataset.train_x.shape[1], dataset.classes, dataset.task)
    refuse_too_large(config, model)
    settings, text = config.engine, config.to_toml()
    roster = Roster(post, run, text, config.partition.clients, events, settings.report_timeout or 60.0)
    roster.recall(dict(memory or {}))
    roster.gather(settings.start_timeout or 60.0, settings.on_missing == "wait")
    office = Office(post, roster, settings, run, text, events)
    inputs, known = dataset.train_x.shape[1], memory is not None
    if config.data.name == "nodes" and config.data.standardize:
        if not known:
            dataset = data.with_scaling(dataset, federated_scaling(office, config, dataset))
        office.use_setup(scaling_arrays(dataset), known)
    if config.sites.structure == "eigen":
        refuse_no_inputs(model)
        basis = basis or federated_basis(office, config, model, inputs)
        office.use_setup({**office.setup, **{name: np.asarray(array) for name, array in basis.items()}}, known)
    program = program_in(config, model, basis)
    engine = FlowerEngine(office, program, inputs)
    evaluation = build_evaluation(config, program.model, engine, dataset)
    federation = Federation(program.model, program, engine, basis)
    parts = make_parts(config, program, engine, evaluation)
    return Wired(config, dataset, parts, federation, evaluation), roster


def taking_part(office: Office, config: Config) -> list[int]:
    """The clients that are there and not barred."""
    barred = config.selection.barred or ()
    return [info.id for info in office.roster.infos if info.rows and info.id not in barred]


def federated_scaling(office: Office, config: Config, dataset: data.Dataset) -> data.Scaling:
    """Mean and scale of every column, from sums over the clients' training rows."""
    present, (first, second) = taking_part(office, config), sum_shapes(len(dataset.feature_names), dataset.task)
    while True:
        before = office.summands("scale", present, {}, first)
        total = add(before.values())
        after = office.summands("scale", list(before), mean_from(total), second)
        if len(after) == len(before):
            return scale_from(total, add(after.values()))
        present = list(after)  # both passes must be over the same rows


def scaling_arrays(dataset: data.Dataset) -> Arrays:
    """What a node needs to scale its own rows."""
    target = np.array([dataset.target_mean, dataset.target_scale])
    return {"mean": dataset.mean, "scale": dataset.scale, "target": target}


def federated_basis(office: Office, config: Config, model: Model, inputs: int) -> Rotation:
    """The eigenvectors of the clients' summed second moments; the server uses nothing but the sums."""
    width = model.prepare(np.zeros((1, inputs), np.float32)).shape[1]
    present = taking_part(office, config)

    def total(probe: np.ndarray | None) -> np.ndarray:
        shape = (width, width if probe is None else probe.shape[1])
        arrays = {} if probe is None else {"probe": probe}
        return add(office.summands("sums", present, arrays, {"moments": (shape, "float64")}).values())["moments"]

    return find_basis(total, width, config.sites.rank or 0, config.seed)
