"""Runs whose sites add up: what is on disk is enough to go on with the same bits, and never less than that."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext

import jax
import numpy as np
import pytest
from reading import read_rounds
from safetensors.numpy import load_file, save_file

from fedstein.errors import InputError
from fedstein.evaluation.predictive import Predictive
from fedstein.models import MODELS
from fedstein.runs import checkpoint, runner
from fedstein.runs.build import build_model
from fedstein.runs.federate import federate, prepare_run

FULL = ("sites.kind=curvature", "sites.structure=full", "sites.expand=mean")
EIGEN = ("sites.kind=curvature", "sites.structure=eigen")
RUNS = {
    "full, ksd": (*FULL, "selection.kind=ksd", "selection.per_round=2"),
    "full, damped": (*FULL, "sites.damping=0.5", "selection.kind=round_robin"),
    "full, float64": (*FULL, "selection.kind=ksd", "engine.precision=float64"),
    "eigen, hip": (*EIGEN, "selection.kind=hip", "selection.per_round=2"),
    "eigen of low rank, ksd": (*EIGEN, "sites.rank=3", "selection.kind=ksd"),
    "pooled": ("algorithm.kind=pooled_svgd", "sites.kind=none"),
    "fedavg": ("algorithm.kind=fedavg", "sites.kind=none", "selection.kind=random", "selection.per_round=2"),
}


def precision_of(settings):
    return jax.enable_x64(True) if "engine.precision=float64" in settings else nullcontext()


def continue_run(folder):
    opened, config = runner.open_run(folder)
    starts = []
    runner.resume(opened, config, lambda done, changes: starts.append(done), lambda record: None)
    return starts[0]


def interrupted(prepared, folder, after):
    """Ctrl-C while that round is being reported."""

    def press(record):
        if record["round"] == after:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(runner.Interrupted, match=f"after round {after}"):
        runner.start(prepared, folder, press)


def watched(prepared):
    """The same run, and the site table that it has after each round."""
    held = {}

    def look(round_index, particles, sites):
        held[round_index] = sites
        return prepared.evaluation(round_index, particles, sites)

    return prepared._replace(context=prepared.context._replace(evaluate=look)), held


@pytest.mark.parametrize("name", RUNS)
def test_a_run_stopped_between_two_checkpoints_goes_on_with_the_same_bits(name, make, run, tmp_path):
    """Checkpoints and fresh sums are due after rounds 4 and 8; the stop comes after round 5, with sums that ran on."""
    settings = (*RUNS[name], "checkpoint.every=4", "rounds=9")
    with precision_of(settings):
        run(tmp_path / "whole", *settings)
        interrupted(make(*settings), tmp_path / "cut", 5)
        assert continue_run(tmp_path / "cut") == 5
    assert read_rounds(tmp_path / "cut") == read_rounds(tmp_path / "whole")
    posteriors = [(tmp_path / kind / "posterior.safetensors").read_bytes() for kind in ("cut", "whole")]
    assert posteriors[0] == posteriors[1]


def test_a_kill_loses_the_rounds_since_the_last_checkpoint_and_nothing_else(make, run, tmp_path):
    class PowerCut(BaseException):
        """What no handler catches, as a kill."""

    def lights_out(record):
        if record["round"] == 5:
            raise PowerCut

    run(tmp_path / "whole", *RUNS["full, ksd"])
    with pytest.raises(PowerCut):
        runner.start(make(*RUNS["full, ksd"]), tmp_path / "cut", lights_out)
    assert continue_run(tmp_path / "cut") == 4
    assert read_rounds(tmp_path / "cut") == read_rounds(tmp_path / "whole")


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_checkpoint_gives_back_what_was_there_the_sums_in_double_on_the_host(precision, make, tmp_path):
    settings = (*FULL, "selection.kind=round_robin", f"engine.precision={precision}", "checkpoint.every=3")
    with precision_of(settings):
        prepared, held = watched(make(*settings))
        interrupted(prepared, tmp_path / "r", 5)
        saved = load_file(tmp_path / "r" / "checkpoint" / "server-000005.safetensors")
        fresh = make(*settings)
        state = checkpoint.load(tmp_path / "r" / "checkpoint", fresh.config, fresh.engine, fresh.context.empty_sites())
    assert saved.keys() == state.server.keys() == {"particles", "eta", "precision"}
    for name in ("eta", "precision"):
        assert isinstance(state.server[name], np.ndarray), "XLA would multiply with other bits"
        assert state.server[name].dtype == saved[name].dtype == np.float64
        np.testing.assert_array_equal(state.server[name], saved[name])
    assert sorted(state.sites) == sorted(state.sites.accepted) == sorted(held[5]) == [0, 1, 2, 3]
    for client, kept in state.sites.accepted.items():
        assert set(kept) == set(state.sites[client]) == {"eta", "precision"}
        for name, array in kept.items():
            assert array.dtype == precision
            np.testing.assert_array_equal(array, held[5][client][name])


@pytest.fixture
def cut(make, tmp_path):
    interrupted(make(*EIGEN, "selection.kind=round_robin"), tmp_path / "cut", 3)
    return tmp_path / "cut"


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "empty", "another"])
def test_a_damaged_or_missing_basis_is_refused(cut, damage):
    path = cut / "basis.safetensors"
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "another":
        save_file({"u": np.eye(55)}, path)
    else:
        changed = {"truncated": content[:-9], "flipped": content[:-1] + bytes([content[-1] ^ 1]), "empty": b""}
        path.write_bytes(changed[damage])
    before = (cut / "rounds.jsonl").read_bytes()
    opened, config = runner.open_run(cut)
    with pytest.raises(InputError, match=r"basis\.safetensors.*(restore|damaged)") as caught:
        runner.resume(opened, config, lambda *_: None, lambda record: None)
    assert "\n" not in str(caught.value)
    assert (cut / "rounds.jsonl").read_bytes() == before, "nothing is lost"
    path.write_bytes(content)
    assert continue_run(cut) == 3


def test_a_basis_for_other_inputs_is_refused(make):
    prepared = make(*EIGEN)
    assert prepared.federation.basis["u"].shape == (55, 55)
    with pytest.raises(InputError, match=r"is for 54 columns, the rows have 55.*basis\.safetensors"):
        prepare_run(prepared.config, prepared.dataset, {"u": np.eye(54)})


def test_only_a_run_that_rotates_has_a_basis(run, tmp_path):
    run(tmp_path / "full", *FULL, "rounds=1")
    assert not (tmp_path / "full" / "basis.safetensors").exists()
    run(tmp_path / "eigen", *EIGEN, "rounds=1")
    u = load_file(tmp_path / "eigen" / "basis.safetensors")["u"]
    np.testing.assert_allclose(u @ u.T, np.eye(55), atol=1e-12)


def test_the_posterior_of_a_rotated_run_is_in_the_inputs_own_coordinates(make, tmp_path):
    """What the folder holds predicts on raw rows what the server's particles predict on rotated ones."""
    prepared = make(*EIGEN, "rounds=2")
    predictions = []

    def look(record):
        predictions.append(record["accuracy"])

    summary = runner.start(prepared, tmp_path / "r", look)
    particles = load_file(tmp_path / "r" / "posterior.safetensors")["particles"]
    model = build_model(prepared.config, 54, 2, "classification")
    out = Predictive(model, prepared.dataset.test_x)(particles)
    accuracy = float(np.mean(out.argmax(axis=1) == prepared.dataset.test_y))
    assert accuracy == pytest.approx(summary["final"]["accuracy"], abs=3e-4)  # rows at one half may fall either way
    by_hand = 1 / (1 + np.exp(-(prepared.dataset.test_x[:50] @ particles[:, :-2].T + particles[:, -2])))
    np.testing.assert_allclose(np.exp(out[:50, 1]), by_hand.mean(axis=1), atol=1e-4)


def test_a_model_without_a_layer_on_its_inputs_has_no_eigen_structure(make):
    prepared = make(*EIGEN)
    model = build_model(prepared.config, 54, 2, "classification")._replace(input_block=None, name="mine")
    rows = [(prepared.dataset.train_x[:9], prepared.dataset.train_y[:9])]
    with pytest.raises(InputError, match=r"'eigen' needs a layer.*'mine'.*'diagonal' or 'full'"):
        federate(prepared.config, model, rows)


def test_every_model_has_a_structure_it_can_use():
    structures = {name: kind.traits.structure for name, kind in MODELS.items()}
    networks = {name for name in structures if name.startswith("bnn")}
    assert networks == {"bnn_classifier", "bnn_regressor"}
    assert structures == {name: "eigen" if name in networks else "full" for name in MODELS}
