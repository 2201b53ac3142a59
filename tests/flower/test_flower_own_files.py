"""Nodes with files of their own: nobody has all the rows, and the server has none."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_runs import QUICK, Fleet, events, in_process, lines
from own_files import COLUMNS, SITES, own, patients, raw, write
from typer.testing import CliRunner

from fedstein.cli.app import app
from fedstein.data.holdout import split_client
from fedstein.errors import FedsteinError, InputError
from fedstein.flower.node import rows
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts


@pytest.mark.parametrize("scheme", ["ksd", "round_robin"])
def test_the_same_as_with_all_rows_in_one_place(fleet: Fleet, tmp_path: Path, scheme: str) -> None:
    """Against one file with a client column: the same scales up to rounding, the same clients, nearly the same bits."""
    own(fleet, tmp_path)
    table, test = tmp_path / "all.csv", write(tmp_path / "test.csv", *patients(9))
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, "site", "ill"])
        for number, name in enumerate(SITES):
            x, y = patients(number)
            writer.writerows([*row, name, label] for row, label in zip(x.tolist(), y.tolist(), strict=True))
    given = raw(selection={"kind": scheme}, data={"test_path": str(test)})
    fleet.run(given, tmp_path / "run")
    together = {"name": "file", "path": str(table), "client": "site", "target": "ill", "test_path": str(test)}
    whole = in_process({**given, "data": together, "partition": {}}, tmp_path / "whole")
    facts, pooled = (json.loads((folder / "data.json").read_text()) for folder in (tmp_path / "run", whole))
    assert facts["mean"] == pytest.approx(pooled["mean"], rel=1e-12)
    assert facts["scale"] == pytest.approx(pooled["scale"], rel=1e-12)
    assert (facts["mean"][2], facts["scale"][2]) == (0.0, 1.0), "a column of 0 and 1 is left alone"
    assert facts["train_rows"] == pooled["train_rows"] == 180
    ours, theirs = lines(tmp_path / "run"), lines(whole)
    assert [line["selected"] for line in ours] == [line["selected"] for line in theirs]
    for ours_line, theirs_line in zip(ours, theirs, strict=True):
        assert ours_line["nll"] == pytest.approx(theirs_line["nll"], rel=1e-4)
    clients = [json.loads((folder / "clients.json").read_text()) for folder in (tmp_path / "run", whole)]
    assert clients[0] == clients[1]


def test_held_out_rows_stay_with_the_nodes(fleet: Fleet, tmp_path: Path) -> None:
    """A fifth of each node's 60 rows: not trained on, not scaled with, and evaluated on by the node alone."""
    own(fleet, tmp_path)
    fleet.run(raw(), tmp_path / "run")
    found = lines(tmp_path / "run")
    assert [line["evaluation"]["rows"] for line in found] == [36] * 6
    assert found[-1]["accuracy"] > 0.7
    clients = json.loads((tmp_path / "run" / "clients.json").read_text())
    assert [(entry["name"], entry["rows"]) for entry in clients] == [(name, 48) for name in SITES]
    each = json.loads((tmp_path / "run" / "clients-evaluation.json").read_text())
    assert [(entry["name"], entry["rows"]) for entry in each["clients"]] == [(name, 12) for name in SITES]
    kept = np.concatenate([split_client(*patients(number), 0.2).x for number in range(3)])
    facts = json.loads((tmp_path / "run" / "data.json").read_text())
    assert facts["mean"][:2] == pytest.approx(kept.mean(axis=0)[:2], rel=1e-12)
    assert facts["scale"][:2] == pytest.approx(kept.std(axis=0)[:2], rel=1e-12)


def test_regression_with_the_server_s_own_test_rows_and_a_basis(fleet: Fleet, tmp_path: Path) -> None:
    own(fleet, tmp_path, (".csv", ".csv", ".npz"), regression=True)
    test = write(tmp_path / "test.csv", *patients(7, regression=True))
    given = raw(
        data={"labels": None, "test_path": str(test)},
        model={"hidden": [5]},
        sites={"kind": "curvature", "structure": "eigen"},
        rounds=25,
    )
    given["data"] = {key: value for key, value in given["data"].items() if value is not None}
    fleet.run(given, tmp_path / "run")
    found = lines(tmp_path / "run")
    assert found[-1]["rmse"] < 0.6 * found[0]["rmse"]
    assert "evaluation" not in found[-1]
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), str(test)])
    assert result.exit_code == 0, result.output


def test_a_run_goes_on_with_the_scales_it_began_with(fleet: Fleet, tmp_path: Path) -> None:
    own(fleet, tmp_path)
    given = raw(selection={"kind": "hip"})
    fleet.run(given, tmp_path / "whole")

    def stop(record: Any) -> None:
        if record["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.run(given, tmp_path / "run", stop)
    fleet.run(given, tmp_path / "run")
    assert lines(tmp_path / "run") == lines(tmp_path / "whole")
    assert (tmp_path / "run" / "posterior.safetensors").read_bytes() == (
        tmp_path / "whole" / "posterior.safetensors"
    ).read_bytes()


MISFITS = {
    "a column is missing": (("age", "weight", "smoker"), None, "dose"),
    "a label is unknown": (COLUMNS, 2, "expected one of"),
    "a value is missing": (COLUMNS, "?", "expected a value in column 'dose'"),
    "a value is no number": (COLUMNS, "high", "and numbers in other rows"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_file_that_does_not_fit_is_named_and_the_others_go_on(fleet: Fleet, tmp_path: Path, misfit: str) -> None:
    own(fleet, tmp_path, (".csv", ".csv", ".csv"))
    columns, value, words = MISFITS[misfit]
    x, y = patients(1)
    rows, labels = x.astype(object), y.astype(object)
    if isinstance(value, str):
        rows[3, 1] = value
    elif value is not None:
        labels[3] = value
    write(tmp_path / "clinic-b.csv", rows, labels, columns)
    given = raw(engine={**QUICK, "on_missing": "proceed", "start_timeout": 1.0})
    fleet.run(given, tmp_path / "run")
    turned = [entry for entry in events(tmp_path / "run") if entry["event"] == "turned away"]
    assert {entry["name"] for entry in turned} == {"clinic-b"}
    assert words in turned[0]["reason"]
    assert str(tmp_path) not in turned[0]["reason"], "the server need not know the node's folders"
    selected = {client for line in lines(tmp_path / "run") for client in line["selected"]}
    names = [entry["name"] for entry in json.loads((tmp_path / "run" / "clients.json").read_text())]
    assert {names[client] for client in selected} <= {"clinic-a", "clinic-c"}
    with pytest.raises(FedsteinError, match="2 of 3 clients"):
        fleet.run(raw(engine={**QUICK, "start_timeout": 1.0}), tmp_path / "waits")


def test_rows_that_change_during_a_run_are_noticed(fleet: Fleet, tmp_path: Path) -> None:
    own(fleet, tmp_path)

    def meddle(record: Any) -> None:
        if record["round"] == 2:
            write(tmp_path / "clinic-a.csv", *patients(5))
            node = fleet.grid.nodes.pop(200)
            fleet.grid.nodes[300] = node

    given = raw(selection={"kind": "round_robin"}, engine={**QUICK, "on_missing": "proceed"})
    fleet.run(given, tmp_path / "run", meddle)
    turned = [entry for entry in events(tmp_path / "run") if entry["event"] == "turned away"]
    assert turned
    assert "rows have changed" in turned[0]["reason"]
    assert all(0 not in line["selected"] for line in lines(tmp_path / "run")[2:])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": {"features": []}}, "data.features"),
        ({"data": {"target": "age"}}, "data.target"),
        ({"data": {"labels": [1]}}, "data.labels"),
        ({"data": {"task": "regression"}}, "no data.labels"),
        ({"evaluate": {"where": "server"}}, "test rows at the server"),
    ],
)
def test_settings_that_do_not_fit_are_refused(fleet: Fleet, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    own(fleet, tmp_path)
    with pytest.raises(InputError, match=words):
        fleet.run(raw(**change), tmp_path / "run")


def test_nodes_need_flower_and_a_number() -> None:
    settings = ["data.name=nodes", 'data.features=["a"]', "data.target=y", "data.labels=[0, 1]"]
    words = [part for text in settings for part in ("--set", text)]
    result = CliRunner().invoke(app, ["run", *words])
    assert result.exit_code != 0
    assert "partition.clients" in str(result.exception)
    result = CliRunner().invoke(app, ["run", *words, "--set", "partition.clients=3"])
    assert "engine.kind" in str(result.exception)


def test_trial_nodes_and_nodes_with_files_do_not_mix(fleet: Fleet, tmp_path: Path) -> None:
    trial = dict(fleet.grid.nodes)
    own(fleet, tmp_path)
    fleet.grid.nodes[100] = trial[100]
    fleet.run(raw(rounds=2), tmp_path / "run")
    turned = [entry for entry in events(tmp_path / "run") if entry["event"] == "turned away"]
    assert "partition-id" in turned[0]["reason"]


def test_rows_are_parsed_once_and_again_when_the_file_changes(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(fleet, tmp_path, (".csv", ".csv", ".csv"))
    parsed: list[str] = []
    read = rows.data.load_rows
    monkeypatch.setattr(rows.data, "load_rows", lambda path, expected: parsed.append(path) or read(path, expected))
    fleet.run(raw(), tmp_path / "run")
    assert len(parsed) == 3, "at the greeting of each node, and never after"
    kept = tmp_path / "s" / "clinic-a" / rows.KEPT
    kept.write_bytes(kept.read_bytes()[:100])  # what is kept can always be made again
    parsed.clear()
    fleet.run(raw(), tmp_path / "other")
    assert len(parsed) == 3
    assert lines(tmp_path / "other") == lines(tmp_path / "run")
    node = rows.read_node(fleet.grid.nodes[200])
    config, _ = resolve(raw(), Facts("classification", 2))
    before = rows.load_rows(config, node, {})
    write(tmp_path / "clinic-a.csv", *patients(5, 61))
    after = rows.load_rows(config, node, {})
    assert before.checksum != after.checksum
    assert len(after.share.x) + len(after.share.held_x) == 61
