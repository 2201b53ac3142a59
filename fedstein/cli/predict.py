"""The command ``fedstein predict``."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import numpy as np

from fedstein import data
from fedstein.errors import InputError
from fedstein.files import disk_errors, write_bytes
from fedstein.inference.sites.gaussian import DRAWS
from fedstein.runs.folder import RunFolder
from fedstein.runs.jax_setup import start_jax
from fedstein.runs.kept_draws import WEIGHTED


def predict_file(path: Path, file: Path, out: Path | None, posterior: str | None, draws: int | None) -> None:
    """Write the predictive distribution of every row of a file as CSV.

    Args:
        path: The folder of a finished run.
        file: The rows to predict for.
        out: The CSV file to write, or None for standard output.
        posterior: "draws", "particles" or "gaussian"; None takes weighted draws if the run has any, else particles.
        draws: The number of draws, or None for the default.

    Raises:
        InputError: If an option, the run folder or the file is invalid.
    """
    if posterior not in (None, "draws", "particles", "gaussian"):
        raise InputError(f"--posterior expects draws, particles or gaussian, got {posterior!r}")
    folder, config = RunFolder.open(path)
    if posterior is None:
        posterior = "draws" if (path / WEIGHTED).is_file() else "particles"
    if draws is not None and posterior == "particles":
        raise InputError(
            "--draws goes with --posterior gaussian or draws; with --posterior particles every particle is used"
        )
    if posterior == "gaussian":
        folder.read_gaussian()  # raises an error, before any row is read, if the run has none
    folder.read_posterior()
    facts = folder.data_facts()
    raw = data.load_features(file, tuple(facts["features"]), folder.encoding())
    rows = data.scaled(raw, np.asarray(facts["mean"]), np.asarray(facts["scale"]))
    if not np.isfinite(rows).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        name = facts["features"][column]
        raise InputError(f"{file}: expected finite numbers, got {raw[row, column]} in column {name!r}, row {row + 1}")
    start_jax(config)

    from fedstein.posterior import load

    found = load(path)
    values = found.predict(raw, posterior, draws or DRAWS, config.seed)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if facts["task"] == "classification":
        labels = facts["labels"] or [str(k) for k in range(facts["classes"])]
        writer.writerow(["prediction", *(f"p_{label}" for label in labels)])
        for row, best in zip(values, values.argmax(axis=1), strict=True):
            writer.writerow([labels[best], *(f"{p:.6g}" for p in row)])
    else:
        writer.writerow(["mean", "sd"])
        for mean, sd in values:
            writer.writerow([f"{mean:.6g}", f"{sd:.6g}"])
    if out is None:
        sys.stdout.write(text.getvalue())
    else:
        with disk_errors(out.parent):
            out.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(out, text.getvalue().encode())
        print(f"{len(raw)} predictions: {out}")
