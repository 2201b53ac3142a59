"""From finished run folders to ``reference.json`` and ``reference.safetensors`` in each; NUTS runs once a posterior."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.errors import InputError
from fedstein.holdout import split_of
from fedstein.reference.distance import distance, distance_of_draws
from fedstein.reference.nuts import Diagnostics, Sampler, sample
from fedstein.reference.target import Pooled
from fedstein.runs.config import Config
from fedstein.runs.files import pack, unpack, write_bytes, write_json
from fedstein.runs.folder import RunFolder
from fedstein.runs.wiring import build_model, load_dataset, split_rows

KEPT = 400  # draws that stay, thinned evenly
POSTERIOR = ("prior_shape", "prior_rate")  # the model settings that the posterior depends on


@dataclass(frozen=True)
class Finished:
    """A finished BLR run."""

    folder: RunFolder
    config: Config
    particles: np.ndarray


@dataclass(frozen=True)
class Group:
    """Runs with one and the same posterior."""

    target: Pooled
    fingerprint: str
    runs: list[Finished]


@dataclass(frozen=True)
class Posterior:
    """What is kept of the chains."""

    mean: np.ndarray
    sd: np.ndarray
    draws: np.ndarray
    diagnostics: Diagnostics


def open_finished(path: Path) -> Finished:
    """The run in a folder; whatever has no reference is refused here, before anything is computed."""
    folder, config = RunFolder.open(path)
    if config.model.kind != "blr":
        raise InputError(
            f"{path}: the NUTS reference is there for model.kind = 'blr' alone, this run has {config.model.kind!r}; "
            "leave it out"
        )
    if config.data.name == "nodes":
        raise InputError(f"{path}: the rows of this run are with its nodes, so nobody can pool them; leave it out")
    if not folder.summary_file.is_file():
        raise InputError(f"{path} is not finished; first: fedstein resume {path}")
    return Finished(folder, config, folder.read_posterior())


def group_runs(runs: Sequence[Finished], sampler: Sampler) -> list[Group]:
    """Runs that share rows, prior and temperature, in the order in which they were given."""
    datasets: dict[str, Any] = {}
    groups: dict[str, Group] = {}
    for run in runs:
        source = run.config.data.model_dump_json()
        if source not in datasets:
            datasets[source] = load_dataset(run.config.to_dict())
        run.folder.check_data(datasets[source])
        if run.config.algorithm.particles < 2:
            kind = run.config.algorithm.kind
            raise InputError(
                f"{run.folder.path} has one particle (algorithm.kind = {kind!r}): there is no spread to compare with a "
                "posterior; leave it out"
            )
        target = pooled(run.config, datasets[source])
        if run.particles.shape[1] != target.model.dim or len(run.particles) < 2 or not np.isfinite(run.particles).all():
            raise InputError(
                f"{run.folder.path}: expected at least two finite particles of {target.model.dim} parameters, "
                f"got an array of {' x '.join(map(str, run.particles.shape))}; posterior.safetensors is damaged"
            )
        key = fingerprint(target, run.config, sampler)
        groups.setdefault(key, Group(target, key, [])).runs.append(run)
    return list(groups.values())


def pooled(config: Config, dataset: Any) -> Pooled:
    """Exactly the rows that the clients of a run trained on, in the order of the dataset, whoever held them."""
    fraction = config.evaluate.fraction
    kept = [index[split_of(dataset.train_y[index], fraction)[0]] for index in split_rows(config, dataset)]
    rows = np.sort(np.concatenate(kept))
    model = build_model(config, dataset.train_x.shape[1], dataset.classes, dataset.task)
    return Pooled(model, model.prepare(dataset.train_x[rows]), dataset.train_y[rows], config.algorithm.temperature)


def fingerprint(target: Pooled, config: Config, sampler: Sampler) -> str:
    """What the reference depends on, as one checksum: rows, prior, temperature, sampler."""
    prior = {name: getattr(config.model, name) for name in POSTERIOR}
    settings = [list(target.x.shape), str(target.x.dtype), prior, target.temperature, sampler._asdict()]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in (target.x, target.y):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def known(group: Group) -> Posterior | None:
    """The reference that an earlier call left in one of the folders, where it is whole and of this posterior."""
    for run in group.runs:
        try:
            facts = json.loads((run.folder.path / "reference.json").read_bytes())
            content = (run.folder.path / "reference.safetensors").read_bytes()
            if facts["fingerprint"] == group.fingerprint and facts["tensors_sha256"] == _sha256(content):
                arrays = unpack(content, run.folder.path)
                checks = Diagnostics(**{name: facts["nuts"][name] for name in Diagnostics._fields})
                if None not in checks:  # chains that never moved have no R-hat
                    return Posterior(arrays["mean"], arrays["sd"], arrays["draws"], checks)
        except (OSError, ValueError, KeyError, TypeError, InputError):
            continue  # none here, or a damaged one: it is made anew
    return None


def sample_posterior(group: Group, sampler: Sampler, on_progress: Callable[[float], None]) -> Posterior:
    chains, diagnostics = sample(group.target, sampler, on_progress)
    theta = chains.reshape(-1, chains.shape[-1])
    kept = np.linspace(0, len(theta) - 1, min(KEPT, len(theta))).round().astype(int)
    return Posterior(theta.mean(axis=0), theta.std(axis=0, ddof=1), theta[kept].astype(np.float32), diagnostics)


def write_reference(run: Finished, group: Group, posterior: Posterior, sampler: Sampler) -> dict[str, Any]:
    """The distances of one run, written to its folder: arrays first, then the JSON that vouches for them."""
    target, path = group.target, run.folder.path
    tensors = pack({"mean": posterior.mean, "sd": posterior.sd, "draws": posterior.draws})
    measures = (posterior.mean, posterior.sd)
    reference = {
        "trusted": posterior.diagnostics.trusted,
        "particles": distance(target, run.particles, *measures),
        "draws": distance_of_draws(target, posterior.draws, len(run.particles), *measures),
        "nuts": {**sampler._asdict(), **posterior.diagnostics._asdict()},
        "rows": len(target.x),
        "dim": target.model.dim,
        "temperature": target.temperature,
        "model": {name: getattr(run.config.model, name) for name in ("kind", *POSTERIOR)},
        "fingerprint": group.fingerprint,
        "tensors_sha256": _sha256(tensors),
        "posterior_sha256": _sha256((path / "posterior.safetensors").read_bytes()),
    }
    try:
        write_bytes(path / "reference.safetensors", tensors)
        write_json(path / "reference.json", reference)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise InputError(f"cannot write in {path} ({reason}); mend that and give the same command again") from error
    return reference


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
