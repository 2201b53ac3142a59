"""Where the particles were: few lines, the right spread, distances kept, and no trace of rounds that were undone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedstein.runs.particle_track import FILE, SNAPSHOTS, cut_track, note_particles, read_track, sketch_of


def cloud(d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(8, d)).astype(np.float32)


def test_the_spread_is_the_root_of_the_mean_variance(tmp_path: Path) -> None:
    note_particles(tmp_path, 1, 10, lambda: cloud(5))
    (line,) = read_track(tmp_path)
    assert line["spread"] == pytest.approx(np.sqrt(cloud(5).var(axis=0).mean()), rel=1e-4)
    np.testing.assert_allclose(line["sketch"], cloud(5), rtol=1e-4)  # at most 16 parameters are kept as they are


def test_a_sketch_keeps_distances_and_is_the_same_each_time() -> None:
    wide = cloud(3000)
    sketch = sketch_of(wide)
    assert sketch.shape == (8, 16)
    np.testing.assert_array_equal(sketch, sketch_of(wide))
    ratio = [
        np.linalg.norm(sketch[i] - sketch[j]) / np.linalg.norm(wide[i] - wide[j]) for i in range(8) for j in range(i)
    ]
    assert np.mean(ratio) == pytest.approx(1, abs=0.15)


def test_a_long_run_keeps_about_a_hundred_rounds(tmp_path: Path) -> None:
    asked = []
    for number in range(1, 1001):
        note_particles(tmp_path, number, 1000, lambda number=number: asked.append(number) or cloud(3))
    rounds = [line["round"] for line in read_track(tmp_path)]
    assert rounds == asked
    assert (rounds[0], rounds[-1]) == (1, 1000)
    assert SNAPSHOTS <= len(rounds) <= SNAPSHOTS + 2


def test_rounds_that_were_undone_are_dropped_and_torn_lines_ignored(tmp_path: Path) -> None:
    for number in range(1, 6):
        note_particles(tmp_path, number, 5, lambda: cloud(3))
    with (tmp_path / FILE).open("a") as file:
        file.write('{"round": 6, "spr')
    assert [line["round"] for line in read_track(tmp_path)] == [1, 2, 3, 4, 5]
    cut_track(tmp_path, 3)
    assert [line["round"] for line in read_track(tmp_path)] == [1, 2, 3]


def test_one_particle_has_no_spread(tmp_path: Path) -> None:
    note_particles(tmp_path, 1, 5, lambda: cloud(3)[:1])
    assert read_track(tmp_path) == []
