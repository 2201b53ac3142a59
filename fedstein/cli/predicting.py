"""``fedstein predict``: rows in, predictive distribution out."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import numpy as np

from fedstein import data
from fedstein.errors import InputError
from fedstein.runs.files import disk_errors, write_bytes
from fedstein.runs.folder import RunFolder
from fedstein.runs.wiring import build_model
from fedstein.sites.gaussian import DRAWS
from fedstein.start import start_jax


def predict_file(path: Path, file: Path, out: Path | None, posterior: str, draws: int | None) -> None:
    if posterior not in ("particles", "gaussian"):
        raise InputError(f"--posterior expects particles or gaussian, got {posterior!r}")
    if draws is not None and posterior == "particles":
        raise InputError("--draws is for --posterior gaussian; the particles are all used")
    folder, config = RunFolder.open(path)
    particles, facts = folder.read_posterior(), folder.data_facts()
    gaussian = folder.read_gaussian() if posterior == "gaussian" else None
    raw = data.load_features(file, tuple(facts["features"]))
    rows = data.scaled(raw, np.asarray(facts["mean"]), np.asarray(facts["scale"]))
    if not np.isfinite(rows).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        name = facts["features"][column]
        raise InputError(f"{file}: expected finite numbers, got {raw[row, column]} in column {name!r}, row {row + 1}")
    start_jax(config)
    if gaussian is not None:
        particles = gaussian.draws(draws or DRAWS, config.seed)

    import jax.numpy as jnp

    from fedstein.predictive import Predictive, mixture_moments

    model = build_model(config, len(facts["features"]), facts["classes"], facts["task"])
    if particles.shape[1] != model.dim:
        raise InputError(
            f"{path}: the posterior has {particles.shape[1]} columns, the model {model.dim}; it is damaged"
        )
    values = Predictive(model, rows)(jnp.asarray(particles, jnp.result_type(float)))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if facts["task"] == "classification":
        labels = facts["labels"] or [str(k) for k in range(facts["classes"])]
        writer.writerow(["prediction", *(f"p_{label}" for label in labels)])
        probabilities = np.exp(values)
        for row, best in zip(probabilities, probabilities.argmax(axis=1), strict=True):
            writer.writerow([labels[best], *(f"{p:.6g}" for p in row)])
    else:
        mean, sd = mixture_moments(values)
        writer.writerow(["mean", "sd"])
        for m, s in zip(mean, sd, strict=True):
            writer.writerow(
                [f"{m * facts['target_scale'] + facts['target_mean']:.6g}", f"{s * facts['target_scale']:.6g}"]
            )
    if out is None:
        sys.stdout.write(text.getvalue())
    else:
        with disk_errors(out.parent):
            out.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(out, text.getvalue().encode())
        print(f"{len(rows)} predictions: {out}")
