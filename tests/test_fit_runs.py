"""``fedstein.fit`` as a run: a folder, progress, callbacks, and ending early."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_run import SMALL_FIT

import fedstein
from fedstein.cli import main
from fedstein.models import custom
from fedstein.runs.early_stopping import stop_reason

SMALL = SMALL_FIT


def clients(labels=("no", "yes")):
    rng = np.random.default_rng(0)
    made = {}
    for name, shift in (("east", -0.5), ("west", 0.5)):
        x = rng.normal(shift, 1, size=(40, 2)).astype(np.float32)
        made[name] = (x, np.where(x[:, 0] > 0, labels[1], labels[0]))
    return made


def command(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0)


def lines(folder):
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "run"
    return fedstein.fit("blr", clients(), test=clients()["east"], out=out, checkpoint__every=2, **SMALL), out


def without_seconds(records):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def test_a_folder_changes_no_bits_and_is_a_run_folder_like_any_other(finished, tmp_path, capsys):
    posterior, out = finished
    bare = fedstein.fit("blr", clients(), test=clients()["east"], **SMALL)
    np.testing.assert_array_equal(posterior.particles, bare.particles)
    assert without_seconds(posterior.rounds) == without_seconds(bare.rounds)
    np.testing.assert_array_equal(posterior.sums.precision, bare.sums.precision)
    loaded = fedstein.load(out)
    assert loaded.labels == ("no", "yes")
    assert loaded.client_names == ("east", "west")
    rows = clients()["west"][0]
    np.testing.assert_array_equal(loaded.predict(rows), bare.predict(rows))
    file = tmp_path / "rows.csv"
    np.savetxt(file, rows, delimiter=",", header="x0,x1", comments="")
    assert command("predict", out, file) == 0
    first = capsys.readouterr().out.splitlines()
    assert first[0] == "prediction,p_no,p_yes"
    assert first[1].split(",")[0] == loaded.predict_class(rows[:1])[0]
    assert command("resume", out) == 2
    assert "is finished: all 4 rounds are done" in capsys.readouterr().err
    with pytest.raises(fedstein.InputError, match="already holds a run"):
        fedstein.fit("blr", clients(), out=out, **SMALL)


class Stop(Exception):
    pass


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(finished, tmp_path):
    whole, _ = finished

    def stop(record):
        if record["round"] == 3:
            raise Stop

    for way in ("python", "command"):
        out = tmp_path / way
        with pytest.raises(Stop):
            fedstein.fit("blr", clients(), test=clients()["east"], out=out, on_round=stop, checkpoint__every=2, **SMALL)
        assert not (out / "summary.json").exists()
        seen = []
        if way == "python":
            again = fedstein.resume(out, on_round=seen.append)
            assert [record["round"] for record in seen] == [3, 4]
        else:
            assert command("resume", out, "--quiet") == 0
            again = fedstein.load(out)
        np.testing.assert_array_equal(again.particles, whole.particles)
        assert without_seconds(again.rounds) == without_seconds(whole.rounds)


def test_rows_that_are_gone_or_others_are_refused(finished, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Stop):
        fedstein.fit("blr", clients(), out=out, on_round=lambda record: (_ for _ in ()).throw(Stop), **SMALL)
    content = (out / "rows.safetensors").read_bytes()
    (out / "rows.safetensors").write_bytes(content[:-4] + b"\1\0\0\0")
    with pytest.raises(fedstein.InputError, match="has changed since the run began"):
        fedstein.resume(out)
    (out / "rows.safetensors").unlink()
    with pytest.raises(fedstein.InputError, match=r"rows\.safetensors, found none"):
        fedstein.resume(out)


class Recorder(fedstein.Callback):
    def __init__(self):
        self.told = []

    def on_start(self, config):
        self.told.append(("start", config["rounds"]))

    def on_round(self, record):
        self.told.append(("round", record["round"]))

    def on_end(self, summary):
        self.told.append(("end", summary and (summary["rounds"], summary["final"]["accuracy"])))


@pytest.mark.parametrize("folder", [False, True])
def test_callbacks_and_progress_are_told_everything(tmp_path, capsys, folder):
    recorder, seen = Recorder(), []
    more = {"out": tmp_path / "run"} if folder else {}
    posterior = fedstein.fit(
        "blr",
        clients(),
        test=clients()["east"],
        progress=True,
        callbacks=[recorder],
        on_round=seen.append,
        **more,
        **SMALL,
    )
    accuracy = posterior.rounds[-1]["accuracy"]
    assert recorder.told == [("start", 4), *(("round", k) for k in (1, 2, 3, 4)), ("end", (4, accuracy))]
    assert seen == posterior.rounds
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in shown[:4]] == ["1/4", "2/4", "3/4", "4/4"]
    assert [line.split(":")[0] for line in shown[4:]] == ["sites checked at 400 draws"]
    with pytest.raises(fedstein.InputError, match="without on_start"):
        fedstein.fit("blr", clients(), callbacks=[print], **SMALL)


def test_without_progress_nothing_is_printed(finished, capsys):
    fedstein.fit("blr", clients(), **SMALL)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("nlls", "patience", "stops"),
    [
        ([0.5, 0.4, 0.4, 0.4], 2, True),
        ([0.5, 0.4, 0.41, 0.39], 2, False),
        ([0.5, 0.4, 0.41, 0.40], 3, False),
        ([0.5, None, 0.6, None, 0.7], 2, True),
        ([0.5, 0.6, 0.7, None], 2, False),  # the latest round was not evaluated
        ([float("inf"), 0.5], 1, False),
        ([0.5, float("nan")], 1, True),
        ([0.1, 0.2, 0.3], None, False),
        ([], 1, False),
    ],
)
def test_patience_counts_evaluations_without_a_lower_nll(nlls, patience, stops):
    records = [{"round": k, "nll": nll} for k, nll in enumerate(nlls, start=1)]
    assert (stop_reason(patience, records) is not None) == stops


@pytest.mark.parametrize("folder", [False, True])
def test_a_run_ends_early_and_says_why(tmp_path, folder):
    """Labels that the features do not explain: held-out rows soon get no better."""
    rng = np.random.default_rng(3)
    noise = [(rng.normal(size=(30, 2)).astype(np.float32), rng.integers(0, 2, 30)) for _ in range(2)]
    more = {"out": tmp_path / "run"} if folder else {}
    posterior = fedstein.fit("blr", noise, early_stopping=2, **more, **{**SMALL, "rounds": 40})
    nlls = [record["nll"] for record in posterior.rounds]
    ended = len(nlls)
    assert 3 <= ended < 40
    assert int(np.argmin(nlls)) == ended - 3
    reason = posterior.rounds[-1]["stopped"]
    assert f"has not fallen below {min(nlls):.4g}, that of round {ended - 2}, in 2 evaluations" in reason
    assert all("stopped" not in record for record in posterior.rounds[:-1])
    assert posterior.config.evaluate.where == "clients"
    if folder:
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["stopped"] == reason
        assert lines(tmp_path / "run")[-1]["stopped"] == reason
        with pytest.raises(fedstein.InputError, match="finished: it ended early: the NLL"):
            fedstein.resume(tmp_path / "run")
        (tmp_path / "run" / "summary.json").unlink()  # as if it had been killed before the end was written
        assert len(fedstein.resume(tmp_path / "run").rounds) == ended


def test_a_run_never_ends_early_by_test_rows():
    with pytest.raises(fedstein.InputError, match="rows that each client holds out; leave test out"):
        fedstein.fit("blr", clients(), test=clients()["east"], early_stopping=2, **SMALL)
    with pytest.raises(fedstein.InputError, match="never by test rows"):
        fedstein.fit("blr", clients(), early_stopping=2, evaluate__where="server", **SMALL)
    with pytest.raises(fedstein.InputError, match="pass one of them"):
        fedstein.fit("blr", clients(), early_stopping=2, evaluate__patience=3, **SMALL)
    with pytest.raises(fedstein.InputError, match=r"evaluate\.patience"):
        fedstein.fit("blr", clients(), early_stopping=0, **SMALL)


def mean_of_y():
    return custom(
        1,
        log_prior=lambda theta: -0.5 * theta[0] ** 2,
        log_likelihood=lambda theta, x, y: -0.5 * (y - theta[0]) ** 2,
        init=lambda key: jax.random.normal(key, (1,)),
        predict=lambda theta, x: jnp.stack([jnp.full(len(x), theta[0]), jnp.zeros(len(x))], axis=1),
        task="regression",
        name="mean of y",
    )


def test_a_model_of_ones_own_must_be_passed_again(tmp_path, capsys):
    rng, model = np.random.default_rng(1), mean_of_y()
    parts = [(np.zeros((20, 1), np.float32), rng.normal(1, 1, 20).astype(np.float32)) for _ in range(2)]
    out = tmp_path / "run"
    posterior = fedstein.fit(model, parts, out=out, **SMALL)
    assert posterior.model is model
    with pytest.raises(fedstein.InputError, match=r"a model of your own.*fedstein\.load\(DIR, model=\.\.\.\)"):
        fedstein.load(out)
    np.testing.assert_array_equal(fedstein.load(out, model=model).particles, posterior.particles)
    for words in (("summary", out), ("predict", out, tmp_path / "none.csv")):
        assert command(*words) == 2
    assert "a model of your own" in capsys.readouterr().err
    assert command("report", out, "--out", tmp_path / "report") == 0
    stopped = tmp_path / "stopped"
    with pytest.raises(Stop):
        fedstein.fit(model, parts, out=stopped, on_round=lambda record: (_ for _ in ()).throw(Stop), **SMALL)
    assert command("resume", stopped) == 2
    assert r"fedstein.resume(DIR, model=...)" in capsys.readouterr().err
    np.testing.assert_array_equal(fedstein.resume(stopped, model=model).particles, posterior.particles)


def test_a_built_in_model_needs_no_model_to_load(finished):
    with pytest.raises(fedstein.InputError, match="needs no model="):
        fedstein.load(finished[1], model=mean_of_y())


def test_checkpoints_need_a_folder():
    with pytest.raises(fedstein.InputError, match="pass out=DIR"):
        fedstein.fit("blr", clients(), checkpoint__every=2, **SMALL)
