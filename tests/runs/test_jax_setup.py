"""What is settled before JAX starts: where programs are kept, and the device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from fedstein.errors import InputError
from fedstein.machine import memory_maps
from fedstein.runs import jax_setup
from fedstein.runs.jax_setup import release_programs, trim, use_device

SETTINGS = (
    "rounds=1",
    "partition.clients=2",
    "partition.rows_per_client=20",
    "algorithm.particles=3",
    "engine.threads=1",
    "sites.expand=mean",
)


def run(out: Path, *more: str, **variables: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "fedstein", "run", "--quiet", "--out", str(out)]
    for setting in (*SETTINGS, *more):
        words += ["--set", setting]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return subprocess.run(words, env={**kept, **variables}, capture_output=True, text=True)


def trained(cache: Path) -> dict[str, int]:
    """The training programs that are kept, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in (cache / "programs").glob("jit__train-*-cache")}


@pytest.mark.slow
def test_programs_outlive_the_process_and_change_no_bit(tmp_path: Path):
    cache = tmp_path / "cache"
    assert run(tmp_path / "a", FEDSTEIN_CACHE=str(cache)).returncode == 0
    programs = trained(cache)
    assert len(programs) == 1
    second = run(tmp_path / "b", FEDSTEIN_CACHE=str(cache))
    assert (second.returncode, second.stderr) == (0, "")
    assert trained(cache) == programs  # read, and not made anew
    name = "posterior.safetensors"
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path):
    (tmp_path / "file").write_text("no folder can be here")
    done = run(tmp_path / "a", FEDSTEIN_CACHE=str(tmp_path / "file"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_cache_of_the_users_own_is_left_to_him(tmp_path: Path):
    own = tmp_path / "own"
    done = run(
        tmp_path / "a",
        FEDSTEIN_CACHE=str(tmp_path / "cache"),
        JAX_COMPILATION_CACHE_DIR=str(own),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    )
    assert done.returncode == 0
    assert any(own.iterdir())
    assert not (tmp_path / "cache").exists()


def test_the_oldest_programs_make_room(tmp_path: Path):
    for age, name in enumerate(("new", "old", "older")):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    trim(tmp_path, 30)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "old", "older"}
    trim(tmp_path, 15)
    assert {path.name for path in tmp_path.iterdir()} == {"new"}


def test_a_device_that_is_not_there_is_a_sentence(tmp_path: Path):
    if any(device.platform != "cpu" for device in jax.devices()):
        pytest.skip("there is an accelerator")
    with pytest.raises(InputError, match=r"engine\.device = 'gpu'.*only: cpu.*'auto'"):
        use_device("gpu")
    done = run(tmp_path / "a", "engine.device=gpu")
    assert done.returncode == 2
    assert done.stderr.startswith("fedstein: engine.device = 'gpu'")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "a").exists()


def test_the_cpu_can_be_asked_for(tmp_path: Path):
    assert run(tmp_path / "a", "engine.device=cpu").returncode == 0
    assert 'device = "cpu"' in (tmp_path / "a" / "config.toml").read_text()


@pytest.mark.skipif(memory_maps() is None, reason="the system does not count memory maps")
def test_programs_are_released_before_the_process_runs_out_of_memory_maps(monkeypatch: pytest.MonkeyPatch):
    kept = [jax.jit(lambda x, k=k: x * k + 1.0) for k in range(20)]  # the functions live on, their programs need not
    values = [float(function(2.0)) for function in kept]
    before = memory_maps()
    assert before is not None
    assert not release_programs()  # far from the limit
    monkeypatch.setattr(jax_setup, "SHARE_OF_MAPS", 0.0)
    assert release_programs()
    after = memory_maps()
    assert after is not None
    assert after[0] < before[0] - 20
    assert [float(function(2.0)) for function in kept] == values
