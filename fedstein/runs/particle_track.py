"""The positions of the particles during a run: ``particles.jsonl``, a line for each of about 100 rounds.

A line has ``round``, ``spread`` (the root of the mean variance of a coordinate over the particles) and ``sketch``: the
particles themselves if d is at most 16, else their product with a fixed d x 16 Gaussian matrix divided by sqrt(16),
which keeps distances up to a relative error of about 1/sqrt(2 * 16).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.files import disk_errors, write_bytes

FILE = "particles.jsonl"
SNAPSHOTS, WIDTH = 100, 16
DIGITS = 5


def sketch_of(particles: np.ndarray) -> np.ndarray:
    """Project particles to at most 16 numbers each, the same way in every round and run.

    Args:
        particles: N x d.

    Returns:
        N x min(d, 16).
    """
    d = particles.shape[1]
    if d <= WIDTH:
        return particles.astype(np.float64)
    matrix = np.random.Generator(np.random.Philox(key=d)).standard_normal((d, WIDTH), dtype=np.float32)
    return np.asarray(particles, np.float64) @ (matrix / np.sqrt(WIDTH))


def note_particles(folder: Path, number: int, rounds: int, particles: Callable[[], np.ndarray]) -> None:
    """Add a line if the round is among those that are kept: about 100, evenly spaced, the first and the last included.

    Args:
        folder: The run folder.
        number: The round.
        rounds: The number of rounds of the run.
        particles: Returns the N x d particles. It is called only if the round is kept and N is at least two.
    """
    every = max(1, rounds // SNAPSHOTS)
    if number % every and number not in (1, rounds):
        return
    found = np.asarray(particles())
    if len(found) < 2 or not np.isfinite(found).all():
        return
    spread = float(np.sqrt(found.astype(np.float64).var(axis=0).mean()))
    points = [[float(f"{value:.{DIGITS}g}") for value in row] for row in sketch_of(found)]
    line = {"round": number, "spread": float(f"{spread:.{DIGITS}g}"), "sketch": points}
    with disk_errors(folder), (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def cut_track(folder: Path, rounds: int) -> None:
    """Remove the lines after the round from which the run continues."""
    if (folder / FILE).is_file():
        kept = [json.dumps(line) + "\n" for line in read_track(folder) if line["round"] <= rounds]
        with disk_errors(folder):
            write_bytes(folder / FILE, "".join(kept).encode())


def read_track(folder: Path) -> list[dict[str, Any]]:
    """Read the complete lines, in the order of rounds. Folders of earlier versions have none."""
    try:
        texts = (folder / FILE).read_text("utf-8", errors="replace").split("\n")
    except OSError:
        return []
    found: dict[int, dict[str, Any]] = {}
    shape: tuple[int, ...] | None = None
    for text in texts:
        try:
            line = json.loads(text)
            number, points = line["round"], np.array(line["sketch"], np.float64)
            shape = shape or points.shape
            if points.ndim == 2 and points.shape == shape and type(number) is int and float(line["spread"]) >= 0:
                found[number] = line
        except (ValueError, KeyError, TypeError):
            continue
    return [found[number] for number in sorted(found)]
