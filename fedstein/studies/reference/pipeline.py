"""Comparing finished runs with NUTS: each folder gets ``reference.json`` and ``reference.safetensors``.

NUTS samples each posterior once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.data.holdout import split_of
from fedstein.errors import InputError
from fedstein.files import pack, unpack, write_bytes, write_json
from fedstein.posterior import load
from fedstein.runs.build import build_model
from fedstein.runs.config import Config
from fedstein.runs.federate import expects_counts, load_dataset, split_rows, was_passed, with_label_noise
from fedstein.runs.folder import RunFolder
from fedstein.studies.reference.compare import pool
from fedstein.studies.reference.distance import weights_of
from fedstein.studies.reference.nuts import Diagnostics, Sampler, sample
from fedstein.studies.reference.scores import Reference, keep, score_posterior
from fedstein.studies.reference.target import Pooled


@dataclass(frozen=True)
class Finished:
    """A finished run."""

    folder: RunFolder
    config: Config
    particles: np.ndarray


@dataclass(frozen=True)
class Group:
    """Runs that have the same posterior."""

    target: Pooled
    fingerprint: str
    runs: list[Finished]


def open_finished(path: Path) -> Finished:
    """Open the folder of a finished run.

    Args:
        path: The run folder.

    Returns:
        The run, with its particles and rows.

    Raises:
        InputError: If the run is not finished, or its rows cannot be pooled.
    """
    folder, config = RunFolder.open(path)
    if config.data.name == "nodes":
        raise InputError(f"{path}: the rows of this run stay with its nodes and cannot be pooled; leave it out")
    if not folder.summary_file.is_file():
        raise InputError(f"{path} is not finished; first: fedstein resume {path}")
    return Finished(folder, config, folder.read_posterior())


def group_runs(runs: Sequence[Finished], sampler: Sampler) -> list[Group]:
    """Group runs that share rows, prior and temperature, in the order in which they were given.

    Args:
        runs: The runs.
        sampler: The settings of NUTS, which are part of the fingerprint of a group.

    Returns:
        The groups.

    Raises:
        InputError: If the data has changed since a run, or its particles cannot be compared.
    """
    datasets: dict[str, Any] = {}
    groups: dict[str, Group] = {}
    for run in runs:
        raw = run.config.to_dict()
        passed = was_passed(run.config)  # to fedstein.fit: the folder itself has the rows
        source = f"{run.config.data.model_dump_json()} {expects_counts(raw)} {run.folder.path if passed else ''}"
        if source not in datasets:
            datasets[source] = run.folder.dataset(run.config) if passed else load_dataset(raw)
        run.folder.check_data(datasets[source])
        if run.config.algorithm.particles < 2:
            kind = run.config.algorithm.kind
            raise InputError(
                f"{run.folder.path} has one particle (algorithm.kind = {kind!r}): there is no spread to compare with a "
                "posterior; leave it out"
            )
        try:
            target = pooled(run.config, datasets[source])
        except InputError as error:
            raise InputError(f"{run.folder.path}: {error}") from None
        if run.particles.shape[1] != target.model.dim or len(run.particles) < 2 or not np.isfinite(run.particles).all():
            raise InputError(
                f"{run.folder.path}: expected at least two finite particles of {target.model.dim} parameters, "
                f"got an array of {' x '.join(map(str, run.particles.shape))}; posterior.safetensors is damaged"
            )
        key = fingerprint(target, run.config, sampler)
        groups.setdefault(key, Group(target, key, [])).runs.append(run)
    return list(groups.values())


def pooled(config: Config, dataset: Any) -> Pooled:
    """Pool the rows that the clients of a run trained on, in the order of the dataset.

    Args:
        config: The config of the run.
        dataset: The dataset.

    Returns:
        The posterior of these rows. Barred clients have no part in it.

    Raises:
        InputError: The model has too many parameters.
    """
    fraction, barred = config.evaluate.fraction, config.selection.barred or ()
    dataset = with_label_noise(config, dataset)
    kept = [
        index[split_of(dataset.train_y[index], fraction)[0]]
        for client, index in enumerate(split_rows(config, dataset))
        if client not in barred
    ]
    model = build_model(config, dataset.train_x.shape[1], dataset.classes, dataset.task)
    groups = kept if model.whole_shard else [np.sort(np.concatenate(kept))]
    return pool(
        model, [(dataset.train_x[rows], dataset.train_y[rows]) for rows in groups], config.algorithm.temperature
    )


def fingerprint(target: Pooled, config: Config, sampler: Sampler) -> str:
    """Return a checksum of everything that the reference depends on: rows, model, temperature and sampler."""
    settings = [list(target.x.shape), str(target.x.dtype), model_of(config), target.temperature, sampler._asdict()]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in (target.x, target.y) if target.weights is None else (target.x, target.y, target.weights):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def model_of(config: Config) -> dict[str, Any]:
    """Return the settings of the model that its posterior depends on: all but where the particles start."""
    return config.model.model_dump(mode="json", exclude={"start"})


def known(group: Group) -> Reference | None:
    """Find a reference that an earlier call has written.

    Args:
        group: The group of runs.

    Returns:
        The posterior, or None if no folder has an undamaged reference of this posterior.
    """
    for run in group.runs:
        try:
            facts = json.loads((run.folder.path / "reference.json").read_bytes())
            content = (run.folder.path / "reference.safetensors").read_bytes()
            if facts["fingerprint"] == group.fingerprint and facts["tensors_sha256"] == _sha256(content):
                arrays = unpack(content, run.folder.path)
                checks = Diagnostics(**{name: facts["nuts"][name] for name in Diagnostics._fields})
                if None not in checks:  # chains that never moved have no R-hat, which JSON stores as null
                    return Reference(arrays["mean"], arrays["sd"], arrays["interval"], arrays["draws"], checks)
        except (OSError, ValueError, KeyError, TypeError, InputError):
            continue  # there is none, or it is damaged: a new one is made
    return None


def sample_posterior(group: Group, sampler: Sampler, on_progress: Callable[[float], None]) -> Reference:
    """Run NUTS and keep what comparisons need.

    Args:
        group: The group of runs.
        sampler: The settings of NUTS.
        on_progress: Called with the share of the work that is done.

    Returns:
        The moments, intervals and draws of the posterior.
    """
    return keep(*sample(group.target, sampler, on_progress))


def write_reference(run: Finished, group: Group, posterior: Reference, sampler: Sampler) -> dict[str, Any]:
    """Compute the distances of one run and write them to its folder. The JSON with the checksums is written last.

    Args:
        run: The run.
        group: The group of the run.
        posterior: The posterior of the group.
        sampler: The settings of NUTS.

    Returns:
        The content of ``reference.json``.

    Raises:
        InputError: If the folder is not writable.
    """
    target, path = group.target, run.folder.path
    kept = {name: getattr(posterior, name) for name in ("mean", "sd", "interval", "draws")}
    tensors, found = pack(kept), load(path)
    reference = {
        "trusted": posterior.diagnostics.trusted,
        **score_posterior(target, posterior, found),
        "nuts": {**sampler._asdict(), **posterior.diagnostics._asdict()},
        "rows": target.rows,
        "dim": target.model.dim,
        "names": list(found.names),
        "is_weight": weights_of(target.model).tolist(),
        "temperature": target.temperature,
        "model": model_of(run.config),
        "fingerprint": group.fingerprint,
        "tensors_sha256": _sha256(tensors),
        "posterior_sha256": _sha256((path / "posterior.safetensors").read_bytes()),
    }
    try:
        write_bytes(path / "reference.safetensors", tensors)
        write_json(path / "reference.json", reference)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise InputError(f"cannot write in {path} ({reason}); correct this and run the same command again") from error
    return reference


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
