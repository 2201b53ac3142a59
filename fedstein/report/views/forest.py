"""The view of coefficients: names and 90% intervals, beside those of NUTS on the pooled rows if there are any."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedstein.files import unpack
from fedstein.inference.sampling import Sampler
from fedstein.posterior import NO_SITES, Posterior, load
from fedstein.report.follow import FollowedRun
from fedstein.report.views.points import short
from fedstein.runs.kept_draws import read_draws

LEVEL, NORMAL = 0.9, 1.6448536269514722  # the central interval, and its end in standard deviations of a Gaussian
MOST, NAMED = 60, 400
GAUSSIAN = (
    "The intervals are those of the site Gaussian. fedstein summary draws from the posterior and keeps the draws."
)


def forest(run: FollowedRun) -> dict[str, Any]:
    """Mean and central 90% interval of each parameter; if there are many, of those furthest from zero.

    Args:
        run: A finished run.

    Returns:
        ``names`` and ``series``, each with ``label``, ``mean``, ``low`` and ``high``.
    """
    posterior = load(run.path)
    d = posterior.particles.shape[1]
    if d > NAMED:
        return {
            "missing": f"The model has {d:,} parameters, of which single ones mean nothing; there is no forest plot."
        }
    mean, low, high, label, notes = _federated(posterior)
    series = [{"label": label, "mean": mean, "low": low, "high": high}]
    pooled = _pooled(run, d)
    if pooled is not None:
        series.append(pooled)
    shown = np.arange(d)
    if d > MOST:
        certainty = np.abs(mean) / np.maximum(high - low, 1e-12)
        shown = np.sort(np.argsort(-certainty, kind="stable")[:MOST])
        notes.append(f"The {MOST} of {d} parameters that are furthest from zero in relation to their intervals.")
    names = posterior.names
    parts = ("mean", "low", "high")
    return {
        "names": [names[i] for i in shown],
        "series": [{"label": s["label"], **{k: [short(v) for v in s[k][shown]] for k in parts}} for s in series],
        "level": LEVEL,
        "notes": notes,
        "units": "standardised" if posterior.scaling is not None and np.any(posterior.scaling.scale != 1) else "raw",
    }


def _federated(posterior: Posterior) -> tuple[Any, Any, Any, str, list[str]]:
    kept = None
    if posterior.folder is not None and posterior.sums is not None:
        kept = read_draws(posterior.folder, Sampler(), 0)
    if posterior.weighted is not None or (kept is not None and kept.draws.shape[-1] == posterior.particles.shape[1]):
        summary = posterior.table("draws")
        mean, low, high = (np.array([row[key] for row in summary]) for key in ("mean", "5%", "95%"))
        label = "federated (draws)" if posterior.weighted is None else "federated (weighted draws)"
        return mean, low, high, label, [*summary.problems, *([summary.note] if summary.note else [])]
    if posterior.gaussian is not None:
        mean = np.asarray(posterior.gaussian.mean, np.float64)
        sd = np.sqrt(np.diag(np.linalg.inv(np.asarray(posterior.gaussian.precision, np.float64))))
        half = NORMAL * sd
        return mean, mean - half, mean + half, "federated (site Gaussian)", [GAUSSIAN, *posterior.doubts]
    found = np.asarray(posterior.particles, np.float64)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(found, (tail, 1 - tail), axis=0)
    return found.mean(axis=0), low, high, "particles", [NO_SITES]


def _pooled(run: FollowedRun, d: int) -> dict[str, Any] | None:
    """The draws of NUTS on the pooled rows, if ``fedstein reference`` has stored them."""
    path = run.path / "reference.safetensors"
    if not path.is_file() or run.files["reference.json"].value is None:
        return None
    draws = np.asarray(unpack(path.read_bytes(), path).get("draws"), np.float64)
    if draws.ndim != 2 or draws.shape[1] != d:
        return None
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(draws, (tail, 1 - tail), axis=0)
    return {"label": "pooled NUTS", "mean": draws.mean(axis=0), "low": low, "high": high}
