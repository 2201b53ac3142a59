"""``evaluate.where = "clients"``: what is held out, what is sent, what is written, and what goes on working."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from reading import read_rounds
from safetensors.numpy import load_file

import fedstein
from fedstein.data import load
from fedstein.data.holdout import split_client, split_of
from fedstein.errors import InputError
from fedstein.evaluation.metrics import NAMES, metrics_of, sum_shapes
from fedstein.evaluation.predictive import Predictive, sums_of
from fedstein.federation import protocol
from fedstein.federation.evaluation import ClientEvaluation
from fedstein.report import write_report
from fedstein.runs import checkpoint, forgetting, runner
from fedstein.runs.config import load_config, merge, resolve
from fedstein.runs.federate import client_rows, facts_of, prepare_run, split_rows
from fedstein.runs.folder import RunFolder
from fedstein.studies.reference.pipeline import pooled
from fedstein.studies.tuning import try_step

CLIENTS = "evaluate.where=clients"
CURVED = ("sites.kind=curvature", "sites.expand=mean", "selection.kind=round_robin")
PARTICLES, DIM, FLOAT, SUMS = 5, 56, 4, 4 * 8 + 3 * 15 * 8


def evaluation_in(folder):
    return json.loads((folder / "clients-evaluation.json").read_text())


def held_rows(config, dataset, barred=()):
    """The held-out rows of all clients, by a path of its own."""
    shares = [split_client(x, y, config.evaluate.fraction) for x, y in client_rows(config, dataset)]
    present = [share for k, share in enumerate(shares) if k not in barred]
    return np.concatenate([s.held_x for s in present]), np.concatenate([s.held_y for s in present])


def on_rows(prepared, x, y, particles):
    """The metrics of the particles on rows in one place."""
    model = prepared.federation.model
    return metrics_of(sums_of(model.task, Predictive(model, x)(particles), y), prepared.dataset.target_scale)


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("evaluate.fraction=0.5",),
        (*CURVED, "sites.structure=eigen"),
        ("partition.kind=dirichlet", "partition.rows_per_client=0", "partition.clients=3"),
        ("selection.barred=[1]",),
    ],
)
def test_a_round_is_scored_as_all_held_out_rows_together(make, covertype, settings):
    prepared = make(CLIENTS, "rounds=2", "selection.kind=round_robin", *settings)
    for state, record in protocol.run_rounds(prepared.context, protocol.first(prepared.context)):
        barred = prepared.config.selection.barred or ()
        x, y = held_rows(prepared.config, covertype, barred)
        expected = on_rows(prepared, x, y, state.server["particles"])
        assert record["evaluation"]["rows"] == len(y)
        assert {name: record[name] for name in NAMES} == pytest.approx(expected, abs=1e-6)
        assert record["accuracy"] == pytest.approx(expected["accuracy"], abs=1e-12)


def test_regression_too():
    diabetes = load("diabetes")
    settings = ["partition.clients=3", "algorithm.particles=4", "model.hidden=[4]", "rounds=2", "engine.threads=1"]
    prepared = prepare_run(
        resolve(merge({}, [*settings, CLIENTS, "data.name=diabetes"]), facts_of(diabetes))[0], diabetes
    )
    state, record = list(protocol.run_rounds(prepared.context, protocol.first(prepared.context)))[-1]
    x, y = held_rows(prepared.config, diabetes)
    expected = on_rows(prepared, x, y, state.server["particles"])
    assert expected["rmse"] > 10, "in the units of the target"
    assert {name: record[name] for name in NAMES} == pytest.approx(expected, abs=1e-3)
    reading = prepared.evaluation(2, prepared.posterior(state.server), state.sites)
    assert reading.reliability is None
    for sums in reading.clients.values():
        assert {name: (array.shape, str(array.dtype)) for name, array in sums.items()} == sum_shapes("regression")


TRAINING = [(), (*CURVED, "sites.structure=eigen"), ("algorithm.kind=pooled_svgd", "sites.kind=none")]


@pytest.mark.parametrize("settings", TRAINING)
def test_held_out_features_have_no_part_in_training(make, covertype, settings):
    prepared = make(CLIENTS, "rounds=3", *settings)
    features = covertype.train_x.copy()
    for index in split_rows(prepared.config, covertype):
        features[index[split_of(covertype.train_y[index], prepared.config.evaluate.fraction)[1]]] += 1
    other = prepare_run(prepared.config, replace(covertype, train_x=features))
    compare_training(prepared, other)


@pytest.mark.parametrize("settings", TRAINING)
def test_held_out_labels_have_no_part_in_training(make, monkeypatch, settings):
    prepared = make(CLIENTS, "rounds=3", *settings)

    def flipped(x, y, fraction):  # after the split, which goes by labels
        share = split_client(x, y, fraction)
        return share._replace(held_y=1 - share.held_y)

    monkeypatch.setattr("fedstein.runs.federate.split_client", flipped)
    compare_training(prepared, make(CLIENTS, "rounds=3", *settings))


def compare_training(one, two):
    (state, line), (other, other_line) = (
        list(protocol.run_rounds(prepared.context, protocol.first(prepared.context)))[-1] for prepared in (one, two)
    )
    assert np.array_equal(state.server["particles"], other.server["particles"])
    assert line["reports"] == other_line["reports"]
    assert line["nll"] != other_line["nll"], "they do count in the evaluation"


def test_training_rows_are_fewer_and_the_test_rows_are_not_looked_at(make, covertype):
    empty = replace(covertype, test_x=covertype.test_x[:0], test_y=covertype.test_y[:0])
    prepared = prepare_run(make(CLIENTS).config, empty)
    assert [client.rows for client in prepared.engine.clients] == [48] * 4
    assert isinstance(prepared.evaluation, ClientEvaluation)
    state = protocol.first(prepared.context)
    reading = prepared.evaluation(1, prepared.posterior(state.server), state.sites)
    assert reading.metrics["accuracy"] is not None


def test_few_programs_are_compiled_for_many_sizes(make):
    prepared = make(CLIENTS, "partition.kind=dirichlet", "partition.rows_per_client=0", "partition.clients=30")
    small = [held for held in prepared.engine.held if 0 < len(held.y) <= 512]
    assert len({len(held.y) for held in small}) > 12
    assert len({held.predictive.x.shape for held in small}) <= 10
    assert all(held.predictive.x.size < 2 * 55 * len(held.y) for held in small)


def test_the_folder_and_its_numbers(run, tmp_path):
    summary = run(tmp_path / "r", CLIENTS, "evaluate.every=4")
    lines = read_rounds(tmp_path / "r")
    assert [line["round"] for line in lines if "evaluation" in line] == [4, 6]
    assert [line["accuracy"] is not None for line in lines] == [False, False, False, True, False, True]
    down, up = 4 * PARTICLES * DIM * FLOAT, 4 * SUMS
    for line in lines[3::2]:
        assert line["evaluation"] == {"rows": 48, "missing": [], "bytes_down": down, "bytes_up": up}
    assert summary["evaluation"] == {"bytes_down": 3 * down, "bytes_up": 3 * up}, "two rounds and the end"
    assert summary["bytes_down"] == sum(line["bytes_down"] for line in lines) == 6 * 4 * PARTICLES * DIM * FLOAT
    found = evaluation_in(tmp_path / "r")
    assert found["round"] == 6
    assert [(entry["id"], entry["name"], entry["rows"]) for entry in found["clients"]] == [
        (k, f"client-{k}", 12) for k in range(4)
    ]
    assert found["together"] == {"rows": 48, **summary["final"]}
    assert np.mean([entry["accuracy"] for entry in found["clients"]]) == pytest.approx(summary["final"]["accuracy"])
    assert sum(row["count"] for row in summary["reliability"]) == 48
    config = load_config(tmp_path / "r" / "config.toml")
    assert (config.evaluate.where, config.evaluate.fraction) == ("clients", 0.2)


def test_settled_particles_and_the_gaussian_are_evaluated_by_clients_too(run, tmp_path):
    summary = run(tmp_path / "r", CLIENTS, *CURVED, "sites.structure=full", "rounds=4")
    scores = {name: summary["settled"][name] for name in NAMES}
    assert evaluation_in(tmp_path / "r")["together"] == {"rows": 48, **scores}
    assert summary["gaussian"]["accuracy"] is not None
    assert summary["final"] != scores


def test_a_barred_client_neither_trains_nor_evaluates(run, tmp_path):
    run(tmp_path / "r", CLIENTS, "selection.barred=[2]")
    assert [entry["id"] for entry in evaluation_in(tmp_path / "r")["clients"]] == [0, 1, 3]
    assert all(2 not in line["selected"] and line["evaluation"]["rows"] == 36 for line in read_rounds(tmp_path / "r"))


def test_pooled_svgd_is_evaluated_on_everybodys_held_out_rows(run, make, covertype, tmp_path):
    settings = (CLIENTS, "algorithm.kind=pooled_svgd", "sites.kind=none", "selection.barred=[2]")
    run(tmp_path / "r", *settings)
    found = evaluation_in(tmp_path / "r")
    assert [(entry["name"], entry["rows"]) for entry in found["clients"]] == [("everybody", 36)]
    (everybody,) = make(*settings).engine.held
    assert np.array_equal(everybody.y, held_rows(make(*settings).config, covertype, [2])[1])


def test_a_resumed_run_has_the_same_bits(make, tmp_path):
    settings = (CLIENTS, "evaluate.every=2")
    whole = runner.start(make(*settings), tmp_path / "whole", lambda record: None)

    def stop(record):
        if record["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.start(make(*settings), tmp_path / "cut", stop)
    folder, config = runner.open_run(tmp_path / "cut")
    summary = runner.resume(folder, config, lambda done, changes: None, lambda record: None)
    seconds = {"seconds": 0.0}
    assert [{**line, **seconds} for line in read_rounds(tmp_path / "cut")] == [
        {**line, **seconds} for line in read_rounds(tmp_path / "whole")
    ]
    assert {**summary, **seconds} == {**whole, **seconds}
    assert evaluation_in(tmp_path / "cut") == evaluation_in(tmp_path / "whole")


def test_folders_from_before_there_was_a_choice_are_the_servers(run, make, tmp_path):
    run(tmp_path / "r")
    path = tmp_path / "r" / "config.toml"
    text = path.read_text()
    assert 'where = "server"\n' in text
    path.write_text(text.replace('where = "server"\n', ""))
    old = load_config(path)
    assert old.evaluate.where == "server"
    assert old.evaluate.fraction is None
    prepared = make()
    checkpoint.load(tmp_path / "r" / "checkpoint", old, prepared.engine, prepared.context.empty_sites())
    report = write_report([tmp_path / "r"], tmp_path / "report")
    assert "Client by client" not in report.html.read_text()


def test_the_fingerprint_is_that_of_the_config_without_what_results_do_not_depend_on(make):
    config = make().config
    bare = config.to_toml()
    for line in ('where = "server"\n', 'device = "auto"\n', "budget = 4096\n"):
        assert line in bare
    bare = bare.replace("budget = 4096\n", "")
    assert checkpoint.fingerprint(config) == hashlib.sha256(bare.encode()).hexdigest()
    assert checkpoint.fingerprint(make(CLIENTS).config) != checkpoint.fingerprint(config)
    assert checkpoint.fingerprint(make("engine.budget=7").config) == checkpoint.fingerprint(config)
    assert checkpoint.fingerprint(make("engine.device=cpu").config) != checkpoint.fingerprint(config)


class Quiet:
    """An engine one of whose clients does not answer."""

    def __init__(self, engine, silent):
        self.clients, self.engine, self.silent = engine.clients, engine, silent

    def evaluate(self, number, particles, clients, sites):
        return self.engine.evaluate(number, particles, [k for k in reversed(clients) if k not in self.silent], sites)


def test_a_client_that_does_not_answer_is_named_and_left_out(make):
    prepared = make(CLIENTS)
    state = protocol.first(prepared.context)
    asked = (1, prepared.posterior(state.server), state.sites)
    whole = prepared.evaluation(*asked)
    reading = ClientEvaluation(Quiet(prepared.engine, {1}), "classification")(*asked)
    assert reading.record["evaluation"]["missing"] == [1]
    assert reading.record["evaluation"]["rows"] == 36
    entries = reading.by_client(prepared.engine.clients)
    assert entries[1] == {"id": 1, "name": "client-1", "rows": None, **dict.fromkeys(NAMES)}
    assert [entries[k] for k in (0, 2, 3)] == [whole.by_client(prepared.engine.clients)[k] for k in (0, 2, 3)]
    nobody = ClientEvaluation(Quiet(prepared.engine, {0, 1, 2, 3}), "classification")(*asked)
    assert nobody.metrics == dict.fromkeys(NAMES)
    answered = ClientEvaluation(Quiet(prepared.engine, set()), "classification")(*asked)
    assert answered.record == whole.record, "the order of the answers makes no difference"


def test_forgetting_evaluates_on_the_others_rows(run, covertype, tmp_path):
    run(tmp_path / "r", CLIENTS, *CURVED, "sites.structure=full", "rounds=4")
    source, config = forgetting.open_source(tmp_path / "r", 2, tmp_path / "new")
    summary = forgetting.forget(source, config, 2, tmp_path / "new", pytest.fail, lambda steps, to_go: None)
    found = evaluation_in(tmp_path / "new")
    assert [entry["id"] for entry in found["clients"]] == [0, 1, 3]
    assert found["together"] == {"rows": 36, **summary["final"]}
    line = read_rounds(tmp_path / "new")[-1]
    assert (line["forgotten"], line["evaluation"]["rows"]) == (2, 36)
    assert summary["before"] is not None
    assert "Client by client" in write_report([tmp_path / "new"], tmp_path / "report").html.read_text()


def test_the_reference_is_the_posterior_of_the_training_rows(make, covertype):
    prepared = make(CLIENTS)
    target = pooled(prepared.config, covertype)
    assert len(target.x) == 4 * 48
    trained = np.concatenate([shard.y[: shard.rows] for shard in prepared.engine.shards])
    assert target.y.sum() == trained.sum()


def test_tuning_leaves_the_held_out_rows_alone(make, covertype, monkeypatch):
    config = make(CLIENTS, "rounds=2").config
    seen = []

    def watch(config, dataset, basis=None, clients=None):
        seen.append((config, clients))
        return prepare_run(config, dataset, basis, clients)

    monkeypatch.setattr("fedstein.studies.tuning.prepare_run", watch)
    trial = try_step(config, covertype, 0.05, 0, fraction=0.25)
    assert trial.accuracy is not None
    ((inner, clients),) = seen
    assert inner.evaluate.fraction == 0.25
    shares = [split_client(x, y, 0.2) for x, y in client_rows(config, covertype)]
    for (x, y), share in zip(clients, shares, strict=True):
        assert np.array_equal(x, share.x)
        assert np.array_equal(y, share.y)


def test_the_report_shows_every_client(run, tmp_path):
    run(tmp_path / "a", CLIENTS)
    run(tmp_path / "b", CLIENTS, "seed=1")
    run(tmp_path / "c", "seed=1")
    result = write_report([tmp_path / name for name in "abc"], tmp_path / "report")
    page = result.html.read_text()
    assert "Client by client" in page
    assert "4 clients, accuracy from" in page
    assert "clients.png" in {path.name for path in result.figures}
    (tmp_path / "a" / "clients-evaluation.json").write_text('{"together": {}}')
    page = write_report([tmp_path / "a"], tmp_path / "again").html.read_text()
    assert re.search(r"clients-evaluation\.json.{0,40}damaged", page), "a damaged file is named"
    assert "Client by client" not in page


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["evaluate.fraction=0"], "evaluate.fraction: .*greater than 0, got 0"),
        (["evaluate.fraction=1"], "evaluate.fraction: .*less than 1, got 1"),
        (["evaluate.fraction=x"], "evaluate.fraction: .*number, got 'x'"),
        (["evaluate.where=nodes"], "unknown value of evaluate.where: 'nodes'.*server, clients"),
    ],
)
def test_misuse_is_one_sentence(make, settings, says):
    with pytest.raises(InputError, match=says):
        make(CLIENTS, *settings)


def test_a_fraction_without_clients_is_refused(covertype):
    with pytest.raises(InputError, match=r"evaluate\.fraction is not used: evaluate\.where is 'server'"):
        resolve({"evaluate": {"fraction": 0.3}}, facts_of(covertype))


def test_a_config_of_a_folder_that_lacks_its_fraction_is_refused(run, tmp_path):
    run(tmp_path / "r", CLIENTS, "rounds=1")
    path = tmp_path / "r" / "config.toml"
    path.write_text(path.read_text().replace("fraction = 0.2\n", ""))
    with pytest.raises(InputError, match=r"evaluate.fraction = None.*set both, or neither"):
        RunFolder.open(tmp_path / "r")


def some_clients(sizes):
    draw = np.random.default_rng(0)
    return [(draw.normal(size=(n, 2)).astype(np.float32), draw.integers(0, 2, n)) for n in sizes]


FIT = {"rounds": 2, "algorithm__particles": 4, "evaluate__where": "clients", "sites__expand": "mean"}


def test_fit_from_python():
    posterior = fedstein.fit("blr", some_clients((20, 1, 30)), **FIT)
    assert [entry["rows"] for entry in posterior.clients] == [4, 0, 6]
    assert posterior.clients[1]["accuracy"] is None
    assert posterior.rounds[-1]["evaluation"]["rows"] == 10
    assert posterior.rounds[-1]["accuracy"] is not None
    plain = fedstein.fit("blr", some_clients((20, 30)), rounds=2, algorithm__particles=4, sites__expand="mean")
    assert plain.clients is None


def test_fit_refuses_test_rows_and_clients_without_a_second_row():
    rows = some_clients((20, 30))
    with pytest.raises(InputError, match="leave test out"):
        fedstein.fit("blr", rows, test=rows[0], **FIT)
    with pytest.raises(InputError, match="needs a client with two rows"):
        fedstein.fit("blr", some_clients((1, 1, 1)), **FIT)


def test_the_posterior_predicts_as_ever(run, tmp_path):
    run(tmp_path / "r", CLIENTS, "rounds=2")
    assert load_file(tmp_path / "r" / "posterior.safetensors")["particles"].shape == (PARTICLES, DIM)
