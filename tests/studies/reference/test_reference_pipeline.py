"""Which folders share a posterior, what is written to them, and what is left when the user stops it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedstein.cli import main
from fedstein.cli.reference import reference_runs
from fedstein.data import load
from fedstein.errors import InputError
from fedstein.files import pack
from fedstein.runs.federate import split_rows
from fedstein.studies.reference import Diagnostics, Sampler
from fedstein.studies.reference import pipeline as work

GOOD = Diagnostics(0, 1.001, 1500.0, 7.0, 12.0)


CHANGES = {
    "ksd": (),
    "other": ("seed = 0", "seed = 1"),
    "warm": ("temperature = 1.0", "temperature = 2.0"),
    "prior": ("prior_rate = 0.01", "prior_rate = 1.0"),
    "start": ('start = "wide"', 'start = "prior"'),
}


@pytest.fixture(scope="module")
def originals(finish, tmp_path_factory) -> dict[str, Path]:
    """Two real runs, and copies of the first whose config says something else."""
    root = tmp_path_factory.mktemp("runs")
    run = finish(root / "run", "selection.kind=ksd")
    made = {"random": finish(root / "random", "selection.kind=random")}
    for name, change in CHANGES.items():
        made[name] = Path(shutil.copytree(run, root / name))
        text = (run / "config.toml").read_text()
        if change:
            assert change[0] in text
            (made[name] / "config.toml").write_text(text.replace(*change))
    return made


@pytest.fixture
def folders(originals, tmp_path) -> dict[str, Path]:
    """Copies that a test may write to."""
    return {name: Path(shutil.copytree(path, tmp_path / name)) for name, path in originals.items()}


@pytest.fixture
def calls(monkeypatch) -> list:
    """In place of NUTS: draws made up, and a note of what was asked for."""
    monkeypatch.setenv("NPROC", "1")  # the command sets it; it comes back afterwards
    asked = []

    def sample(target, sampler, on_progress):
        asked.append(target)
        on_progress(1.0)
        return np.random.default_rng(0).normal(size=(2, 100, target.model.dim)), GOOD

    monkeypatch.setattr(work, "sample", sample)
    return asked


def facts(folder: Path) -> dict:
    return json.loads((folder / "reference.json").read_text())


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if "reference" in path.name or path.name.startswith(".")}


def test_nuts_runs_once_for_runs_that_share_a_posterior(folders, calls) -> None:
    reference_runs(list(folders.values()), Sampler(), True)
    assert len(calls) == 4  # ksd, random and start are one; another seed, temperature and prior are others
    prints = {name: facts(path)["fingerprint"] for name, path in folders.items()}
    assert prints["ksd"] == prints["random"] == prints["start"]
    assert len(set(prints.values())) == 4
    assert facts(folders["ksd"])["particles"] != facts(folders["random"])["particles"]


def test_the_rows_are_those_the_clients_held(folders, calls) -> None:
    reference_runs([folders["warm"]], Sampler(), True)
    config, dataset = work.open_finished(folders["warm"]).config, load("covertype")
    held = np.concatenate(split_rows(config, dataset))
    assert len(held) == 240
    want = dataset.train_x[held]
    got = calls[0].x[:, :-1]
    assert calls[0].temperature == 2.0
    np.testing.assert_array_equal(got[np.lexsort(got.T)], want[np.lexsort(want.T)])
    assert np.all(calls[0].x[:, -1] == 1)


def test_what_is_written(folders, calls) -> None:
    reference_runs([folders["ksd"]], Sampler(2, 50, 100, 9), True)
    got, arrays = facts(folders["ksd"]), load_file(folders["ksd"] / "reference.safetensors")
    particles = load_file(folders["ksd"] / "posterior.safetensors")["particles"]
    theta = np.random.default_rng(0).normal(size=(200, 56))
    np.testing.assert_allclose(arrays["mean"], theta.mean(axis=0))
    np.testing.assert_allclose(arrays["sd"], theta.std(axis=0, ddof=1))
    np.testing.assert_allclose(arrays["interval"], np.quantile(theta, (0.05, 0.95), axis=0).T)
    assert arrays["draws"].shape == (200, 56)
    offsets = (particles.astype(np.float64).mean(axis=0) - theta.mean(axis=0)) / theta.std(axis=0, ddof=1)
    assert got["particles"]["mean_offset"]["each"] == pytest.approx(list(offsets))
    assert got["trusted"] is True
    assert got["nuts"] == {"chains": 2, "warmup": 50, "draws": 100, "seed": 9, **GOOD._asdict()}
    assert got["names"][-2:] == ["intercept", "log xi"]
    assert got["is_weight"] == [True] * 55 + [False]
    ours = got["particles"]
    assert 0 <= ours["interval"]["coverage"]["median"] <= 1
    assert ours["energy"]["p_value"] == 1 / 500  # made up draws are nobody's
    assert (ours["within"], ours["weights"]) == (0, 55)
    assert got["gaussian"] is got["quoted"] is None  # sites of particles have no sums
    assert (got["rows"], got["dim"], got["particles"]["count"], got["draws"]["count"]) == (240, 56, 5, 5)


def test_an_earlier_reference_is_used_again_where_it_fits(folders, calls) -> None:
    reference_runs([folders["ksd"]], Sampler(), True)
    before = facts(folders["ksd"])
    reference_runs([folders["random"], folders["ksd"]], Sampler(), True)
    assert len(calls) == 1
    assert facts(folders["ksd"]) == before
    assert facts(folders["random"])["tensors_sha256"] == before["tensors_sha256"]
    reference_runs([folders["ksd"]], Sampler(seed=1), True)
    assert len(calls) == 2  # another sampler
    arrays = load_file(folders["ksd"] / "reference.safetensors")
    (folders["ksd"] / "reference.safetensors").write_bytes(pack({**arrays, "mean": arrays["mean"] + 1}))
    reference_runs([folders["ksd"]], Sampler(seed=1), True)
    assert len(calls) == 3  # arrays that the JSON does not vouch for
    (folders["ksd"] / "reference.json").write_text("{")
    reference_runs([folders["ksd"]], Sampler(seed=1), True)
    assert len(calls) == 4


def test_a_stop_leaves_whole_references_or_none(folders, calls, monkeypatch) -> None:
    whole = work.sample

    def stopped(target, sampler, on_progress):
        if calls:
            on_progress(0.5)
            raise KeyboardInterrupt
        return whole(target, sampler, on_progress)

    monkeypatch.setattr(work, "sample", stopped)
    with pytest.raises(KeyboardInterrupt):
        reference_runs([folders["ksd"], folders["other"], folders["random"]], Sampler(), True)
    both = {"reference.json", "reference.safetensors"}
    assert files(folders["ksd"]) == files(folders["random"]) == both
    assert files(folders["other"]) == set()


def test_doubtful_chains_are_said_to_be(folders, calls, monkeypatch, capsys) -> None:
    monkeypatch.setattr(work, "sample", lambda t, s, p: (np.ones((2, 50, 56)) * np.arange(50)[:, None], bad))
    bad = Diagnostics(3, 1.5, 12.0, 7.0, 1.0)
    reference_runs([folders["ksd"]], Sampler(), True)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "3 divergences" in said.err
    assert "1.500" in said.err
    assert facts(folders["ksd"])["trusted"] is False


def test_particles_that_do_not_fit_are_refused_before_sampling(folders, calls) -> None:
    (folders["other"] / "posterior.safetensors").write_bytes(pack({"particles": np.ones((5, 7), np.float32)}))
    with pytest.raises(InputError, match="damaged"):
        reference_runs([folders["ksd"], folders["other"]], Sampler(), True)
    assert calls == []
    assert files(folders["ksd"]) == set()


def refused(capsys, *arguments: str | Path) -> str:
    """The one line on standard error of a command that exits with 2."""
    with pytest.raises(SystemExit) as stop:
        main(["reference", *map(str, arguments)])
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert said.count("\n") == 1
    return said


def test_what_has_no_reference_is_refused(folders, finish, calls, capsys, tmp_path) -> None:
    network = finish(tmp_path / "bnn", "model.kind=bnn_classifier", "rounds=1")
    said = refused(capsys, folders["ksd"], network)
    assert "bnn: the reference needs a model of at most 500 parameters, 'bnn_classifier' has 5702" in said
    average = finish(
        tmp_path / "average", "algorithm.kind=fedavg", "sites.kind=none", "algorithm.particles=1", "rounds=1"
    )
    assert "has one particle (algorithm.kind = 'fedavg')" in refused(capsys, folders["ksd"], average)
    assert "not a run folder" in refused(capsys, tmp_path)
    (folders["random"] / "summary.json").unlink()
    assert "not finished; first: fedstein resume" in refused(capsys, folders["ksd"], folders["random"])
    facts = json.loads((folders["other"] / "data.json").read_text())
    (folders["other"] / "data.json").write_text(json.dumps({**facts, "sha256": "0" * 64}))
    assert "has changed since the run began" in refused(capsys, folders["ksd"], folders["other"])
    assert "--chains from 2" in refused(capsys, folders["ksd"], "--chains", "1")
    assert "--draws from 50" in refused(capsys, folders["ksd"], "--draws", "0")
    assert calls == []
    assert files(folders["ksd"]) == set()
