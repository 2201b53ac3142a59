"""A posterior in a folder of its own: a run folder without rows and checkpoint, which is finished from the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedstein.data.label_coding import label_kind
from fedstein.data.scaling import unscaled
from fedstein.federation.records import RoundRecord
from fedstein.files import disk_errors, write_json
from fedstein.inference.sampling import Sampler
from fedstein.runs.folder import RunFolder
from fedstein.runs.kept_draws import write_draws, write_sums, write_weights
from fedstein.runs.runner import summarise


def save_posterior(path: Path, posterior: Any) -> Path:
    """Write a posterior.

    Args:
        path: A new or empty folder.
        posterior: The posterior.

    Returns:
        The folder.

    Raises:
        InputError: The folder holds something, or cannot be written to.
    """
    model = posterior.model
    features = posterior.features or tuple(f"x{i}" for i in range(model.features or len(posterior.names)))
    scaling = posterior.scaling or unscaled(len(features))
    labels = posterior.labels or tuple(range(model.classes))
    facts = {
        "name": "posterior",
        "task": model.task,
        "features": list(features),
        "mean": np.asarray(scaling.mean).tolist(),
        "scale": np.asarray(scaling.scale).tolist(),
        "classes": len(labels) if model.task == "classification" else 0,
        "labels": [str(label) for label in labels],
        "label_kind": label_kind(labels),
        "target_mean": scaling.target_mean,
        "target_scale": scaling.target_scale,
        "sha256": "",
        **({} if posterior.encoding is None else {"columns": posterior.encoding.to_json()}),
        "train_rows": 0,
        "test_rows": 0,
    }
    names = posterior.client_names or tuple(f"client-{k}" for k in range(posterior.config.partition.clients))
    clients = [{"id": k, "name": name, "rows": 0} for k, name in enumerate(names)]
    folder = RunFolder.begin(path, posterior.config, clients, facts)
    for record in posterior.rounds:
        folder.append(record)
    folder.write_posterior(np.asarray(posterior.particles))
    if posterior.gaussian is not None:
        folder.write_gaussian(posterior.gaussian)
    if posterior.sums is not None:
        write_sums(path, posterior.sums)
        made = posterior._made.get((Sampler(), 0))
        if made is not None:
            write_draws(path, made, Sampler(), 0)
    if posterior.clients is not None:
        folder.write_evaluation({"round": len(posterior.rounds), "clients": posterior.clients})
    if posterior.weighted is not None:
        write_weights(path, {"saved": True}, posterior.weighted)
    with disk_errors(path):
        records = [RoundRecord.from_dict(record) for record in posterior.rounds]
        write_json(folder.summary_file, summarise(records, len(clients)) | {"doubts": list(posterior.doubts)})
    return path
