"""Particle diagnostics: their spread over rounds, and where they were, projected to two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedstein.report.follow import FollowedRun
from fedstein.report.views.points import short, shorts
from fedstein.runs.particle_track import FILE, WIDTH, read_track

NO_TRACK = (
    "This run folder has no particles.jsonl: the run is older, has not finished a round, or has fewer than two "
    "particles."
)
DAMAGED = "particles.jsonl has no line that can be read."
FRAMES = 40


def particles(run: FollowedRun) -> dict[str, Any]:
    """The spread of the particles by round, and their two principal components over all kept rounds.

    Args:
        run: The run.

    Returns:
        ``rounds`` and ``spread``; ``frames``, a list of [round, [[x, y], ...]]; ``share``, the part of the variance
        that the two components have; ``exact``, whether nothing but them was projected away.
    """
    track = read_track(run.path)
    if not track:
        return {"missing": DAMAGED if (run.path / FILE).is_file() and len(run.table) else NO_TRACK}
    sketches = np.array([line["sketch"] for line in track], np.float64)
    flat = sketches.reshape(-1, sketches.shape[-1])
    centred = flat - flat.mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    plane = axes[:2] if len(axes) > 1 else np.vstack([axes, np.zeros_like(axes)])
    signs = np.where(plane[np.arange(len(plane)), np.abs(plane).argmax(axis=1)] < 0, -1.0, 1.0)
    placed = (centred @ (plane * signs[:, None]).T).reshape(*sketches.shape[:2], 2)
    chosen = np.unique(np.linspace(0, len(track) - 1, min(FRAMES, len(track))).round().astype(int))
    total = float((sizes**2).sum())
    return {
        "rounds": [line["round"] for line in track],
        "spread": shorts(line["spread"] for line in track),
        "frames": [[track[i]["round"], [shorts(point) for point in placed[i]]] for i in chosen],
        "share": short((sizes[:2] ** 2).sum() / total if total else 1.0),
        "exact": sketches.shape[-1] < WIDTH,
        "count": sketches.shape[1],
    }
