"""Single rows: those on which the particles disagree most, and how well each client's rows are predicted."""

from __future__ import annotations

import base64
import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.data import Dataset
from fedstein.data.holdout import split_of
from fedstein.errors import InputError
from fedstein.evaluation.metrics import metrics_of
from fedstein.evaluation.predictive import Predictive, sums_of
from fedstein.posterior import Posterior, load
from fedstein.report.follow import FollowedRun
from fedstein.report.views.calibration import client_scores
from fedstein.report.views.points import short
from fedstein.runs.federate import split_rows, with_label_noise
from fedstein.runs.folder import RunFolder

SCANNED, SHOWN = 1000, 12  # test rows that are looked at, and rows that are shown
PER_CLIENT, TOTAL = 200, 6000  # rows of one client and of all that are scored
FEATURES = 6  # the number of features that are named for a row
WITH_NODES = "The rows of this run stay with its nodes."
EVALUATED = "Each client has scored the posterior on its own held-out rows."


@lru_cache(maxsize=2)
def _opened(path: str, stamp: Any) -> tuple[Posterior, Dataset]:
    posterior = load(path)
    if posterior.config.data.name == "nodes":
        raise InputError(WITH_NODES)
    return posterior, RunFolder(Path(path)).dataset(posterior.config)


def uncertain_rows(run: FollowedRun) -> dict[str, Any]:
    """The test rows of the highest epistemic uncertainty, each as a picture or by its most unusual features.

    For classes it is the mutual information of label and parameter, ``H(mean p) - mean H(p)`` in nats; for a
    regression the standard deviation of the particles' means.

    Args:
        run: A finished run.
    """
    posterior, dataset = _opened(str(run.path), run.files["summary.json"].stamp)
    if not len(dataset.test_x):
        return {"missing": "The data has no test rows."}
    index = np.unique(np.linspace(0, len(dataset.test_x) - 1, min(SCANNED, len(dataset.test_x))).round().astype(int))
    x, y = dataset.test_x[index], dataset.test_y[index]
    classes = dataset.task == "classification"
    each = _each_particle(posterior, x)
    if classes:
        mean = each.mean(axis=0)
        epistemic = _entropy(mean) - _entropy(each).mean(axis=0)
    else:
        epistemic = each[..., 0].std(axis=0) * dataset.target_scale
    order = np.argsort(-epistemic, kind="stable")[:SHOWN]
    shape = _picture_shape(dataset)
    rows = []
    for i in order:
        entry: dict[str, Any] = {"row": int(index[i]), "epistemic": short(max(epistemic[i], 0.0))}
        if shape is not None:
            entry["picture"] = _picture(x[i] * dataset.scale + dataset.mean, shape)
        else:
            entry["features"] = _unusual(dataset, x[i])
        if classes:
            best = np.argsort(-mean[i], kind="stable")[:3]
            entry |= {"total": short(_entropy(mean[i])), "truth": _label(dataset, int(y[i]))}
            entry["predicted"] = [[_label(dataset, int(k)), short(mean[i, k])] for k in best]
        else:
            moved = [dataset.target_mean + dataset.target_scale * float(v) for v in (each[:, i, 0].mean(), y[i])]
            entry |= {"mean": short(moved[0]), "truth": short(moved[1])}
        rows.append(entry)
    return {
        "rows": rows,
        "task": dataset.task,
        "scanned": len(index),
        "of": len(dataset.test_x),
        "median": short(np.median(epistemic)),
        "particles": len(each),
    }


def _each_particle(posterior: Posterior, x: np.ndarray) -> np.ndarray:
    """Particles x rows x classes probabilities, or particles x rows x 2 for a regression."""
    import jax.numpy as jnp

    points = jnp.asarray(posterior.particles, jnp.float32)
    predictive = Predictive(posterior.model, x)
    if posterior.model.task == "classification":
        return np.stack([np.exp(predictive(points[i : i + 1])) for i in range(len(points))])
    out = predictive(points)
    return np.moveaxis(out.reshape(len(x), 2, len(points)), 2, 0)


def _entropy(probabilities: np.ndarray) -> np.ndarray:
    p = np.clip(probabilities, 1e-12, 1.0)
    return -(p * np.log(p)).sum(axis=-1)


def _label(dataset: Dataset, k: int) -> str:
    return str(dataset.label_names[k]) if k < len(dataset.label_names) else str(k)


def _picture_shape(dataset: Dataset) -> tuple[int, int] | None:
    count = len(dataset.feature_names)
    side = round(count**0.5)
    named = all("pixel" in name.lower() for name in dataset.feature_names[:2])
    return (side, side) if side * side == count and (named or dataset.name.startswith("mnist")) else None


def _picture(values: np.ndarray, shape: tuple[int, int]) -> str:
    """A grey picture as the data URI of a PNG."""
    span = max(float(values.max() - values.min()), 1e-12)
    grey = (255 * (values - values.min()) / span).round().astype(np.uint8).reshape(shape)
    lines = b"".join(b"\0" + row.tobytes() for row in grey)

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    head = struct.pack(">IIBBBBB", shape[1], shape[0], 8, 0, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _unusual(dataset: Dataset, row: np.ndarray) -> list[list[Any]]:
    """The features that are furthest from their means: name, value in its own unit, and standard deviations (None for a
    column that is not scaled)."""
    found: list[list[Any]] = []
    for i in np.argsort(-np.abs(row), kind="stable")[:FEATURES]:
        scaled = dataset.scale[i] != 1 or dataset.mean[i] != 0
        places = 4 - int(np.floor(np.log10(abs(dataset.scale[i])))) if dataset.scale[i] else 4
        value = round(float(row[i] * dataset.scale[i] + dataset.mean[i]), places)
        found.append([dataset.feature_names[i], short(value), short(row[i]) if scaled else None])
    return found


def client_rows_view(run: FollowedRun) -> dict[str, Any]:
    """The scores of each client's training rows, for runs in which the server evaluated."""
    if run.files["clients-evaluation.json"].value is not None:
        return {"missing": EVALUATED}
    posterior, dataset = _opened(str(run.path), run.files["summary.json"].stamp)
    if posterior.model.whole_shard:
        return {"missing": "The model has an effect of each client, which only the client knows."}
    import jax.numpy as jnp

    config = posterior.config
    shares = split_rows(config, dataset)
    dataset = with_label_noise(config, dataset)
    most = max(10, min(PER_CLIENT, TOTAL // max(len(shares), 1)))
    kept = []
    for rows in shares:
        rows = rows[split_of(dataset.train_y[rows], config.evaluate.fraction)[0]]
        kept.append(rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))])
    everything = np.concatenate(kept)
    predictive = Predictive(posterior.model, dataset.train_x[everything])
    points = jnp.asarray(posterior.particles, jnp.float32)
    out, own = predictive(points), predictive.log_densities(points, dataset.train_y[everything])
    metric = "accuracy" if dataset.task == "classification" else "rmse"
    entries: list[dict[str, Any]] = []
    start = 0
    for name, rows in zip(run.names, kept, strict=False):
        part = slice(start, start + len(rows))
        start += len(rows)
        if len(rows):
            densities = None if own is None else own[part]
            sums = sums_of(dataset.task, out[part], dataset.train_y[rows], log_densities=densities)
            found: dict[str, Any] = {**metrics_of(sums, dataset.target_scale), "name": name, "rows": len(rows)}
            if found.get(metric) is not None:
                entries.append(found)
    if not entries:
        return {"missing": f"No client has a value of {metric}."}
    where = f"on at most {most} of its own training rows (the server evaluated, so clients hold no rows out)"
    return client_scores(entries, metric, where)
