"""A run from beginning to end: the contract of the run folder, the ledger, the determinism."""

from __future__ import annotations

import json
import re
import tomllib

import numpy as np
import pytest
from reading import read_rounds
from safetensors.numpy import load_file

from fedstein.errors import FedsteinError, InputError
from fedstein.federation.client import compilations
from fedstein.federation.protocol import run_rounds
from fedstein.runs import runner
from fedstein.runs.config import Config
from fedstein.runs.folder import RunFolder

SCHEMES = ["round_robin", "random", "ksd", "hip"]
FLOAT = 4
PARTICLES, CLIENTS, DIM = 5, 4, 56
WHOLE = PARTICLES * DIM * FLOAT  # the bytes of one N x d array
SITE = (DIM + DIM * DIM) * FLOAT  # of eta and a full precision
CURVED = "sites.kind=curvature"
MEAN = "sites.expand=mean"


def test_the_folder_holds_what_the_contract_names(run, tmp_path):
    summary = run(tmp_path / "r")
    folder = tmp_path / "r"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "config.toml",
        "environment.json",
        "clients.json",
        "data.json",
        "rounds.jsonl",
        "checkpoint",
        "particles.jsonl",
        "posterior.safetensors",
        "summary.json",
    }
    particles = load_file(folder / "posterior.safetensors")["particles"]
    assert particles.shape == (PARTICLES, DIM)
    assert np.isfinite(particles).all()
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert json.loads((folder / "environment.json").read_text())["threads"] == 1
    assert tomllib.loads((folder / "config.toml").read_text())["sites"]["bandwidth"] == 0.55
    clients = json.loads((folder / "clients.json").read_text())
    assert [(c["id"], c["rows"]) for c in clients] == [(k, 60) for k in range(CLIENTS)]
    wanted = {"rounds", "final", "tail", "bytes_down", "bytes_up", "row_gradients", "selected_counts", "seconds"}
    assert wanted | {"reliability", "status"} == set(summary)
    assert sum(summary["selected_counts"]) == 6


@pytest.mark.parametrize("kind", SCHEMES)
def test_every_line_has_the_contracts_keys_and_the_schemes_meaning(run, tmp_path, kind):
    run(tmp_path / "r", f"selection.kind={kind}")
    lines = [json.loads(line) for line in (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5, 6]
    for line in lines:
        assert len(line["selected"]) == 1
        assert line["failed"] == []
        assert line["candidates"] == CLIENTS
        assert line["candidate_ids"] is None
        assert 0 <= line["accuracy"] <= 1
        assert line["rmse"] is None
        assert line["seconds"] > 0
        if kind in ("ksd", "hip"):
            assert len(line["reports"]) == len(line["probabilities"]) == CLIENTS
            assert sum(line["probabilities"]) == pytest.approx(1)
            positive = np.maximum(line["reports"], 0)
            assert np.allclose(line["probabilities"], positive / positive.sum())
        else:
            assert line["reports"] is None
            assert line["probabilities"] is None
    if kind == "round_robin":
        assert [line["selected"] for line in lines] == [[0], [1], [2], [3], [0], [1]]


@pytest.mark.parametrize(
    ("settings", "down", "up"),
    [
        (["selection.kind=round_robin"], WHOLE, WHOLE),
        (["selection.kind=random"], WHOLE, WHOLE),
        (["selection.kind=ksd"], CLIENTS * WHOLE, CLIENTS * FLOAT + WHOLE),
        (["selection.kind=hip"], CLIENTS * WHOLE, CLIENTS * WHOLE + WHOLE),
        (["selection.kind=ksd", "selection.pool=2"], 2 * WHOLE, 2 * FLOAT + WHOLE),
        (["selection.kind=ksd", "selection.per_round=3"], (CLIENTS + 2) * WHOLE, CLIENTS * FLOAT + 3 * WHOLE),
        (["selection.kind=round_robin", "selection.per_round=3"], 3 * WHOLE, 3 * WHOLE),
        ([CURVED, MEAN, "selection.kind=round_robin"], WHOLE + SITE, WHOLE + SITE),
        ([CURVED, MEAN, "selection.kind=ksd"], 2 * CLIENTS * WHOLE + SITE, CLIENTS * FLOAT + WHOLE + SITE),
        ([CURVED, MEAN, "selection.kind=hip"], CLIENTS * WHOLE + SITE, CLIENTS * WHOLE + WHOLE + SITE),
        ([CURVED, "sites.structure=eigen", "selection.kind=round_robin"], 3 * WHOLE, 3 * WHOLE),
        (["algorithm.kind=fedavg", "sites.kind=none"], CLIENTS * WHOLE, CLIENTS * (WHOLE + FLOAT)),
        (["algorithm.kind=pooled_svgd", "sites.kind=none"], WHOLE, WHOLE),
    ],
)
def test_the_byte_ledger_counts_what_travels(run, tmp_path, settings, down, up):
    summary = run(tmp_path / "r", *settings)
    for line in read_rounds(tmp_path / "r"):
        assert (line["bytes_down"], line["bytes_up"]) == (down, up)
    assert (summary["bytes_down"], summary["bytes_up"]) == (6 * down, 6 * up)


@pytest.mark.parametrize(
    ("settings", "train", "report"),
    [
        ([], 3 * 25 * 5, 4 * 60 * 5),
        (["selection.report_rows=10"], 3 * 25 * 5, 4 * 10 * 5),
        (["selection.report_rows=10", "selection.pool=2"], 3 * 25 * 5, 2 * 10 * 5),
        (["algorithm.batch_size=100"], 3 * 60 * 5, 4 * 60 * 5),
        (["selection.kind=random", "selection.per_round=2"], 2 * 3 * 25 * 5, 0),
        ([CURVED, MEAN, "selection.kind=random"], 3 * 25 * 5, 0),
    ],
)
def test_row_gradients_count_rows_times_particles(run, tmp_path, settings, train, report):
    run(tmp_path / "r", *settings)
    site = 2 * 60 * 5 if CURVED in settings else 0  # the gradient and the curvature of the whole shard
    for line in read_rounds(tmp_path / "r"):
        assert line["row_gradients"] == {"train": train, "site": site, "report": report}


def test_a_pool_is_drawn_anew_each_round_and_only_its_members_train(run, tmp_path):
    run(tmp_path / "r", "selection.pool=2", "rounds=12")
    lines = read_rounds(tmp_path / "r")
    assert all(len(line["candidate_ids"]) == len(line["reports"]) == line["candidates"] == 2 for line in lines)
    assert all(set(line["selected"]) <= set(line["candidate_ids"]) for line in lines)
    assert len({tuple(line["candidate_ids"]) for line in lines}) > 2


def test_several_clients_a_round_are_distinct_and_hand_the_particles_on(run, tmp_path):
    run(tmp_path / "r", "selection.kind=hip", "selection.per_round=4")
    for line in read_rounds(tmp_path / "r"):
        assert sorted(line["selected"]) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", SCHEMES)
def test_one_client_is_enough(run, tmp_path, kind):
    run(tmp_path / "r", f"selection.kind={kind}", "partition.kind=iid", "partition.clients=1", "rounds=2")
    assert [line["selected"] for line in read_rounds(tmp_path / "r")] == [[0], [0]]


def test_metrics_are_null_between_evaluations_but_the_last_round_has_them(run, tmp_path):
    run(tmp_path / "r", "evaluate.every=4")
    seen = [line["accuracy"] is not None for line in read_rounds(tmp_path / "r")]
    assert seen == [False, False, False, True, False, True]


@pytest.mark.parametrize("kind", SCHEMES)
def test_same_seed_same_bits_other_seed_other_run(run, tmp_path, kind):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run(tmp_path / name, f"selection.kind={kind}", f"seed={seed}")
    a, b, c = (read_rounds(tmp_path / name) for name in "abc")
    assert a == b
    assert a != c
    posterior = [(tmp_path / name / "posterior.safetensors").read_bytes() for name in "abc"]
    assert posterior[0] == posterior[1] != posterior[2]


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [*((kind, "dsvgd") for kind in SCHEMES), ("hip", "parallel_dsvgd"), ("round_robin", "parallel_dsvgd")],
)
@pytest.mark.parametrize("stop_after", [1, 4, 5])
def test_an_interrupted_run_resumes_to_the_same_bits(make, run, tmp_path, kind, algorithm, stop_after):
    settings = (f"selection.kind={kind}", "selection.per_round=2", f"algorithm.kind={algorithm}")
    run(tmp_path / "whole", *settings)
    prepared = make(*settings)
    folder = RunFolder.create(tmp_path / "cut", prepared.config, prepared.engine.clients, prepared.dataset)

    class PowerCut(BaseException):
        """What no handler catches, as a kill."""

    def lights_out(record):
        if record["round"] == stop_after:
            raise PowerCut

    with pytest.raises(PowerCut):
        runner.continue_rounds(folder, prepared, runner.first(prepared.context), lights_out)
    with folder.rounds_file.open("ab") as file:
        file.write(b'{"round": 99, "torn')
    starts, changes = [], []
    opened, config = runner.open_run(tmp_path / "cut")
    runner.resume(opened, config, lambda done, new: (starts.append(done), changes.extend(new)), lambda record: None)
    assert starts == [(stop_after - 1) // 2 * 2], "at most the rounds since the last checkpoint are lost"
    assert changes == []
    assert read_rounds(tmp_path / "cut") == read_rounds(tmp_path / "whole")
    names = ("posterior.safetensors",)
    assert all((tmp_path / "cut" / n).read_bytes() == (tmp_path / "whole" / n).read_bytes() for n in names)


@pytest.mark.slow
def test_a_run_from_before_a_key_joined_the_config_goes_on(make, run, tmp_path, monkeypatch):
    """As this version would have written it, had it not known ``[channel]`` and ``algorithm.kernel``."""
    run(tmp_path / "whole")
    plain = Config.to_dict

    def older(config):
        found = plain(config)
        del found["channel"], found["algorithm"]["kernel"]
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Config, "to_dict", older)
        stopped(make, tmp_path / "r")
    written = (tmp_path / "r" / "config.toml").read_text()
    assert "[channel]" not in written
    assert "kernel" not in written
    (tmp_path / "r" / "config.toml").write_text(re.sub(r"report_rows = .*", "", written))
    folder, config = runner.open_run(tmp_path / "r")  # a key that the run had was taken out
    with pytest.raises(InputError, match=r"different config\.toml"):
        runner.resume(folder, config, lambda *_: None, lambda record: None)
    (tmp_path / "r" / "config.toml").write_text(written)
    folder, config = runner.open_run(tmp_path / "r")
    runner.resume(folder, config, lambda *_: None, lambda record: None)
    assert read_rounds(tmp_path / "r") == read_rounds(tmp_path / "whole")


def test_a_finished_run_is_not_resumed(run, tmp_path):
    run(tmp_path / "r")
    with pytest.raises(InputError, match="finished"):
        runner.open_run(tmp_path / "r")


def test_training_that_diverges_stops_with_round_client_and_cause(make, tmp_path):
    """Real divergence: a step so large that the first move overflows float32."""
    prepared = make("algorithm.step_size=1e38", "rounds=20", "selection.kind=round_robin")
    with pytest.raises(FedsteinError, match=r"round \d+: client \d+ .*not finite.*step_size") as caught:
        runner.start(prepared, tmp_path / "r", lambda record: None)
    assert caught.value.exit_code == 1
    assert not (tmp_path / "r" / "summary.json").exists()


def test_divergence_in_a_later_round_keeps_the_rounds_before_it(make, tmp_path):
    prepared = make("selection.kind=round_robin", "checkpoint.every=100")
    train = prepared.engine.train

    def goes_wrong(number, client, assignment, cached, sites):
        reply = train(number, client, assignment, cached, sites)
        wrong = {"particles": reply.update["particles"] * np.nan}
        return reply if number < 4 else reply._replace(update=wrong)

    prepared.engine.train = goes_wrong
    with pytest.raises(FedsteinError, match="round 4: client 3"):
        runner.start(prepared, tmp_path / "r", lambda record: None)
    assert json.loads((tmp_path / "r" / "checkpoint" / "manifest.json").read_text())["round"] == 3
    assert len(read_rounds(tmp_path / "r")) == 3


def stopped(make, folder, *settings):
    """A run that was stopped after its second round."""
    prepared = make("rounds=6", *settings)

    class PowerCut(BaseException):
        pass

    def lights_out(record):
        if record["round"] == 3:
            raise PowerCut

    with pytest.raises(PowerCut):
        runner.start(prepared, folder, lights_out)


def test_two_processes_cannot_run_one_folder(make, tmp_path):
    stopped(make, tmp_path / "r")
    folder, config = runner.open_run(tmp_path / "r")
    before = (tmp_path / "r" / "rounds.jsonl").read_bytes()
    with folder.locked():
        again, _ = runner.open_run(tmp_path / "r")
        with pytest.raises(InputError, match="in use"):
            runner.resume(again, config, lambda *_: None, lambda record: None)
    assert (tmp_path / "r" / "rounds.jsonl").read_bytes() == before
    runner.resume(folder, config, lambda *_: None, lambda record: None)


def test_changed_data_is_refused_and_a_changed_machine_is_said(make, tmp_path):
    stopped(make, tmp_path / "r")
    folder, config = runner.open_run(tmp_path / "r")
    facts = json.loads((tmp_path / "r" / "data.json").read_text())
    (tmp_path / "r" / "data.json").write_text(json.dumps({**facts, "sha256": "0" * 64}))
    with pytest.raises(InputError, match=r"data .* has changed"):
        runner.resume(folder, config, lambda *_: None, lambda record: None)
    (tmp_path / "r" / "data.json").write_text(json.dumps(facts))
    environment = json.loads((tmp_path / "r" / "environment.json").read_text())
    (tmp_path / "r" / "environment.json").write_text(json.dumps({**environment, "python": "2.7"}))
    said = []
    runner.resume(folder, config, lambda done, changes: said.extend(changes), lambda record: None)
    assert len(said) == 1
    assert said[0].startswith("python was 2.7")


def test_client_states_exist_only_for_clients_that_were_selected(make, tmp_path):
    prepared = make("selection.kind=round_robin", "rounds=3")
    runner.start(prepared, tmp_path / "r", lambda record: None)
    manifest = json.loads((tmp_path / "r" / "checkpoint" / "manifest.json").read_text())
    assert sorted(manifest["clients"]) == ["0", "1", "2"]
    states = [sorted(state.sites) for state, _ in run_rounds(prepared.context, runner.first(prepared.context))]
    assert states == [[0], [0, 1], [0, 1, 2]]


def test_nothing_recompiles_after_the_first_round(make, tmp_path):
    prepared = make("selection.kind=ksd", "rounds=8")
    counts = []
    runner.start(prepared, tmp_path / "r", lambda record: counts.append(compilations()))
    assert len(set(counts)) == 1


@pytest.mark.parametrize("density", ["log", "reference"])
@pytest.mark.parametrize("data", ["digits", "diabetes", "breast_cancer"])
def test_every_small_dataset_runs(data, density, tmp_path):
    from fedstein.data import load
    from fedstein.runs.config import resolve
    from fedstein.runs.federate import facts_of, prepare_run

    dataset = load(data)
    raw = {
        "data": {"name": data},
        "rounds": 2,
        "sites": {"kind": "particles", "density": density},
        "algorithm": {"particles": 4, "local_steps": 2, "distill_steps": 2},
    }
    config, _ = resolve(raw, facts_of(dataset))
    summary = runner.start(prepare_run(config, dataset), tmp_path / "r", lambda record: None)
    lead = "rmse" if dataset.task == "regression" else "accuracy"
    assert summary["final"][lead] is not None
    assert summary["final"]["nll"] is not None
    assert (summary["reliability"] is None) == (dataset.task == "regression")
