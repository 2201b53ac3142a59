"""``fedstein run --seeds``: real processes side by side."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from forked import fedstein
from reading import read_rounds

from fedstein.errors import InputError
from fedstein.runs.config import load_config
from fedstein.runs.series import SeriesRun, require_same_run

SETTINGS = (
    "rounds=3",
    "partition.clients=3",
    "partition.rows_per_client=20",
    "algorithm.particles=3",
    "sites.expand=mean",
)


def settings(*more: str) -> list[str]:
    return [word for setting in (*SETTINGS, *more) for word in ("--set", setting)]


@pytest.mark.slow
def test_seeds_run_side_by_side_and_are_those_of_single_runs(tmp_path: Path):
    out = tmp_path / "many"
    done = fedstein("run", "--seeds", "2", "--seed", "5", "--jobs", "2", "--out", str(out), *settings())
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 side by side" in done.stdout
    assert (out / "report" / "report.html").exists()
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == ["report", "seed5", "seed6"]
    threads = load_config(out / "seed5" / "config.toml").engine.threads
    assert threads == max(1, (os.cpu_count() or 1) // 2)
    alone = tmp_path / "alone"
    single = fedstein("run", "-q", "--seed", "6", "--out", str(alone), *settings(f"engine.threads={threads}"))
    assert single.returncode == 0
    assert read_rounds(alone) == read_rounds(out / "seed6")
    before = (out / "seed5" / "summary.json").stat().st_mtime_ns
    again = fedstein("run", "-q", "--seeds", "2", "--seed", "5", "--out", str(out), *settings())
    assert again.returncode == 0
    assert (out / "seed5" / "summary.json").stat().st_mtime_ns == before  # what is done is not done again
    other = fedstein("run", "-q", "--seeds", "2", "--seed", "5", "--out", str(out), *settings("rounds=4"))
    assert other.returncode == 2
    assert "seed5 holds a run with another config" in other.stderr


def test_wrong_uses_are_refused(tmp_path: Path):
    lonely = fedstein("run", "--jobs", "2")
    assert (lonely.returncode, lonely.stderr) == (
        2,
        "fedstein: --jobs goes with --seeds: how many of them run side by side\n",
    )
    (tmp_path / "file").write_text("")
    taken = fedstein("run", "--seeds", "2", "--out", str(tmp_path / "file"))
    assert taken.returncode == 2
    assert "is a file or a run itself" in taken.stderr
    nodes = fedstein("run", "--seeds", "2", "--set", "engine.kind=flower", "--out", str(tmp_path / "new"))
    assert nodes.returncode == 2
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_no_run_yet_is_no_obstacle(tmp_path: Path):
    job = SeriesRun("seed0", 3, "{}", 0)
    require_same_run(tmp_path / "seed0", job)
    (tmp_path / "seed0").mkdir()
    (tmp_path / "seed0" / "config.toml").write_text("seed = 0\n")
    with pytest.raises(InputError):
        require_same_run(tmp_path / "seed0", job)
