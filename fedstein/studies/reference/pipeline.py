"""From finished run folders to ``reference.json`` and ``reference.safetensors`` in each.

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
from fedstein.runs.federate import expects_counts, load_dataset, split_rows
from fedstein.runs.folder import RunFolder
from fedstein.studies.reference.distance import distance, distance_of_draws, mean_offsets, sd_ratios
from fedstein.studies.reference.nuts import Diagnostics, Sampler, sample
from fedstein.studies.reference.target import Pooled

AGREES = 0.1  # of a posterior sd: what counts as the same interval
KEPT = 400  # the number of draws to keep, evenly thinned
POSTERIOR = ("prior_shape", "prior_rate")  # the model settings that the posterior depends on


@dataclass(frozen=True)
class Finished:
    """A finished BLR run."""

    folder: RunFolder
    config: Config
    particles: np.ndarray


@dataclass(frozen=True)
class Group:
    """Runs that have the same posterior."""

    target: Pooled
    fingerprint: str
    runs: list[Finished]


@dataclass(frozen=True)
class Posterior:
    """The part of the chains that is kept."""

    mean: np.ndarray
    sd: np.ndarray
    draws: np.ndarray
    diagnostics: Diagnostics


def open_finished(path: Path) -> Finished:
    """Open the folder of a finished run.

    Args:
        path: The run folder.

    Raises:
        InputError: If the run is not finished, is not a BLR, or its rows cannot be pooled.
    """
    folder, config = RunFolder.open(path)
    if config.model.kind != "blr":
        raise InputError(
            f"{path}: the NUTS reference exists only for model.kind = 'blr', this run has {config.model.kind!r}; "
            "leave it out"
        )
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

    Raises:
        InputError: If the data has changed since a run, or its particles cannot be compared.
    """
    datasets: dict[str, Any] = {}
    groups: dict[str, Group] = {}
    for run in runs:
        raw = run.config.to_dict()
        source = f"{run.config.data.model_dump_json()} {expects_counts(raw)}"
        if source not in datasets:
            datasets[source] = load_dataset(raw)
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
    """Pool the rows that the clients of a run trained on, in the order of the dataset.

    Args:
        config: The config of the run.
        dataset: The dataset.

    Raises:
        InputError: The model has effects of single clients.
    """
    fraction = config.evaluate.fraction
    kept = [index[split_of(dataset.train_y[index], fraction)[0]] for index in split_rows(config, dataset)]
    rows = np.sort(np.concatenate(kept))
    model = build_model(config, dataset.train_x.shape[1], dataset.classes, dataset.task)
    if model.whole_shard:
        raise InputError(
            f"fedstein reference pools all clients' rows, and model.kind = {config.model.kind!r} has an intercept "
            "for each client, which pooling would make one; leave the run out"
        )
    return Pooled(model, model.prepare(dataset.train_x[rows]), dataset.train_y[rows], config.algorithm.temperature)


def fingerprint(target: Pooled, config: Config, sampler: Sampler) -> str:
    """Return a checksum of everything that the reference depends on: rows, prior, temperature and sampler."""
    prior = {name: getattr(config.model, name) for name in POSTERIOR}
    settings = [list(target.x.shape), str(target.x.dtype), prior, target.temperature, sampler._asdict()]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in (target.x, target.y):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def known(group: Group) -> Posterior | None:
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
                    return Posterior(arrays["mean"], arrays["sd"], arrays["draws"], checks)
        except (OSError, ValueError, KeyError, TypeError, InputError):
            continue  # there is none, or it is damaged: a new one is made
    return None


def sample_posterior(group: Group, sampler: Sampler, on_progress: Callable[[float], None]) -> Posterior:
    """Sample the posterior of a group.

    Args:
        group: The group of runs.
        sampler: The settings of NUTS.
        on_progress: Called with the share of the work that is done.
    """
    chains, diagnostics = sample(group.target, sampler, on_progress)
    theta = chains.reshape(-1, chains.shape[-1])
    kept = np.linspace(0, len(theta) - 1, min(KEPT, len(theta))).round().astype(int)
    return Posterior(theta.mean(axis=0), theta.std(axis=0, ddof=1), theta[kept].astype(np.float32), diagnostics)


def write_reference(run: Finished, group: Group, posterior: Posterior, sampler: Sampler) -> dict[str, Any]:
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
    tensors = pack({"mean": posterior.mean, "sd": posterior.sd, "draws": posterior.draws})
    measures = (posterior.mean, posterior.sd)
    reference = {
        "trusted": posterior.diagnostics.trusted,
        "particles": distance(target, run.particles, *measures),
        "draws": distance_of_draws(target, posterior.draws, len(run.particles), *measures),
        "quoted": score_draws(path, posterior),
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
        raise InputError(f"cannot write in {path} ({reason}); correct this and run the same command again") from error
    return reference


def score_draws(path: Path, posterior: Posterior) -> dict[str, Any] | None:
    """Compare what a run's draws say with the posterior: offsets of means in posterior sds, and ratios of sds.

    Args:
        path: The run folder. The draws are kept in it.
        posterior: The posterior of the same rows in one place.

    Returns:
        The entry ``quoted`` of ``reference.json``, over the weights; ``within`` counts those whose mean is at most
        AGREES sds off and whose sd is right to that share. None for runs without full sites.
    """
    found = load(path)
    if found.sums is None:
        return None
    draws = found.draws()
    offsets = np.abs(mean_offsets(draws, posterior.mean, posterior.sd))[:-1]
    ratios = sd_ratios(draws, posterior.sd)[:-1]
    return {
        "trusted": found.trusted,
        "mean_offset": {"median": float(np.median(offsets)), "max": float(np.max(offsets))},
        "sd_ratio": {name: float(getattr(np, name)(ratios)) for name in ("min", "median", "max")},
        "within": int(np.sum((offsets <= AGREES) & (np.abs(ratios - 1) <= AGREES))),
        "weights": len(ratios),
    }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
