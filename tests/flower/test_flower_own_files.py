"""Nodes with files of their own: nobody has all the rows, and the server has none."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import QUICK, Fleet, events, in_process, lines
from typer.testing import CliRunner

from fedstein.cli.app import app
from fedstein.data.holdout import share_out
from fedstein.errors import FedsteinError, InputError
from fedstein.flower.messages import Envelope, InvalidMessage
from fedstein.flower.node import rows
from fedstein.flower.records import from_record
from fedstein.flower.server.columns import read_counts
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts

SITES = ("clinic-a", "clinic-b", "clinic-c")
COLUMNS = ("age", "dose", "smoker")


def patients(seed: int, rows: int = 60, regression: bool = False) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = np.column_stack([draw.normal(60 + 4 * seed, 9, rows), draw.normal(1000, 3, rows), draw.integers(0, 2, rows)])
    score = (x[:, 0] - 62) / 9 - (x[:, 1] - 1000) / 3 + x[:, 2]
    return x, score if regression else (score + draw.normal(0, 0.5, rows) > 0).astype(int)


def write(path: Path, x: np.ndarray, y: np.ndarray, columns: tuple[str, ...] = COLUMNS, name: str = "ill") -> Path:
    if path.suffix == ".npz":
        np.savez(path, x=x, **{name: y}, feature_names=np.array(columns))
    elif path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({**dict(zip(columns, x.T, strict=True)), name: y, "note": ["x"] * len(y)}), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*columns, name])
            writer.writerows([*row, label] for row, label in zip(x.tolist(), y.tolist(), strict=True))
    return path


def own(fleet: Fleet, tmp_path: Path, suffixes: tuple[str, ...] = (".csv", ".npz", ".parquet"), **more: Any) -> None:
    """Three nodes, each with a file of another kind."""
    fleet.grid.nodes.clear()
    for number, (name, suffix) in enumerate(zip(SITES, suffixes, strict=True)):
        path = write(tmp_path / f"{name}{suffix}", *patients(number, **more))
        fleet.grid.nodes[200 + number] = node_of(name, path, tmp_path, COLUMNS)


def node_of(name: str, path: Path, tmp_path: Path, columns: tuple[str, ...]) -> dict[str, Any]:
    """The node config of a clinic whose operator allows these features."""
    allowed = {"target": "ill", "features": ",".join(columns)}
    return {"name": name, "data": str(path), "state-dir": str(tmp_path / "s" / name), **allowed}


def raw(**sections: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "seed": 1,
        "rounds": 6,
        "data": {"name": "nodes", "features": list(COLUMNS), "target": "ill", "labels": [0, 1]},
        "partition": {"clients": 3},
        "algorithm": {"particles": 6, "local_steps": 5},
        "engine": dict(QUICK),
    }
    for name, given in sections.items():
        base[name] = {**base.get(name, {}), **given} if isinstance(given, dict) else given
    return base


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
    kept = np.concatenate([share_out(*patients(number), 0.2).x for number in range(3)])
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


COLUMNS_OF_ALL_KINDS = ("age", "sex", "ward", "dose")


def mixed_file(path: Path, seed: int, rows: int = 40) -> Path:
    """Text, an integer code and numbers, some of which are missing; not every category is at every clinic."""
    draw = np.random.default_rng(seed)
    header, lines = [*COLUMNS_OF_ALL_KINDS, "ill"], []
    if seed == 1:
        header = header[::-1]
    for row in range(rows):
        cells = {"age": f"{draw.integers(30, 70)}", "sex": draw.choice(["f", "m"]), "dose": f"{draw.normal(5, 2):.2f}"}
        cells |= {"ward": str(draw.integers(1, 3) + seed), "ill": str(draw.integers(0, 2))}
        if row % 7 == seed:
            cells["dose"] = "NA"
        lines.append([cells[name] for name in header])
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    return path


def mixed(fleet: Fleet, tmp_path: Path) -> list[Path]:
    files = [mixed_file(tmp_path / f"{name}.csv", number) for number, name in enumerate(SITES)]
    fleet.grid.nodes.clear()
    for number, (name, path) in enumerate(zip(SITES, files, strict=True)):
        fleet.grid.nodes[300 + number] = node_of(name, path, tmp_path, COLUMNS_OF_ALL_KINDS)
    return files


@pytest.mark.parametrize("missing", [pytest.param("mean", marks=pytest.mark.slow), "indicator"])
def test_categories_and_missing_values_are_found_from_counts_and_sums(
    fleet: Fleet, tmp_path: Path, missing: str
) -> None:
    """Against the same files in one process: the same columns, the same names, and nearly the same numbers."""
    files, test = mixed(fleet, tmp_path), mixed_file(tmp_path / "test.csv", 1)
    about = {"features": list(COLUMNS_OF_ALL_KINDS), "target": "ill", "labels": [0, 1], "missing": missing}
    about |= {"categories": ["sex", "ward"], "test_path": str(test)}
    fleet.run(raw(data=about, rounds=2), tmp_path / "run")
    together = {**about, "name": "file", "path": [str(file) for file in files]}
    whole = in_process({**raw(rounds=2), "data": together, "partition": {}}, tmp_path / "whole")
    facts, pooled = (json.loads((folder / "data.json").read_text()) for folder in (tmp_path / "run", whole))
    extra = ["dose missing"] if missing == "indicator" else []
    assert facts["features"] == ["age", "sex=f", "sex=m", *(f"ward={i}" for i in range(1, 5)), "dose", *extra]
    assert facts["features"] == pooled["features"]
    assert facts["mean"] == pytest.approx(pooled["mean"], rel=1e-12)
    assert facts["scale"] == pytest.approx(pooled["scale"], rel=1e-12)
    assert [each["categories"] for each in facts["columns"]] == [each["categories"] for each in pooled["columns"]]
    assert facts["columns"][3]["fill"] == pytest.approx(pooled["columns"][3]["fill"], rel=1e-12)
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["data"]
    assert config["categories"] == {"sex": ["f", "m"], "ward": ["1", "2", "3", "4"]}
    assert config["fill"]["dose"] == pytest.approx(facts["columns"][3]["fill"])
    assert lines(tmp_path / "run")[-1]["nll"] == pytest.approx(lines(whole)[-1]["nll"], rel=1e-4)
    assert any(event["event"] == "columns" for event in events(tmp_path / "run"))


def asked(fleet: Fleet) -> set[str]:
    """The kinds of requests that the server has sent."""
    return {str(from_record(message.content).head["kind"]) for message in fleet.grid.sent}


def test_text_is_a_category_without_a_word(fleet: Fleet, tmp_path: Path) -> None:
    """The names and counts of the nodes' text, and nothing else, decide; the union is in the config of the run."""
    files = mixed(fleet, tmp_path)
    files[2].write_text(files[2].read_text().replace(",f,", ",x,"))  # a category that one node alone has
    about = {"features": ["age", "sex", "ward"], "target": "ill", "labels": [0, 1], "coding": "reference"}
    replies: list[Any] = []
    fleet.grid.meddle = lambda request, reply: replies.append(from_record(reply.content).head) or reply
    fleet.run(raw(data=about, rounds=2), tmp_path / "run")
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["data"]
    assert (config["categories"], config["coding"]) == ({"sex": ["f", "m", "x"]}, "reference")
    facts = json.loads((tmp_path / "run" / "data.json").read_text())
    assert facts["features"] == ["age", "sex=m", "sex=x", "ward"], "integers are numbers unless they are named"
    assert "columns" in asked(fleet)
    counts = [json.loads(str(head["columns"])) for head in replies if "columns" in head]
    assert [set(every["sex"]["names"]) for every, _ in counts] == [{"f", "m"}, {"f", "m"}, {"x", "m"}]
    assert all(not part["age"]["names"] for pair in counts for part in pair), "of numbers no value travels"
    fleet.grid.sent.clear()
    given = {**about, "categories": {"sex": ["f", "m", "x"]}}
    fleet.run(raw(data=given, rounds=2), tmp_path / "listed")
    assert "columns" not in asked(fleet), "where lists are given nobody is asked"
    assert lines(tmp_path / "listed") == lines(tmp_path / "run")


def test_a_run_on_numbers_goes_on_and_is_asked_once(fleet: Fleet, tmp_path: Path) -> None:
    own(fleet, tmp_path)
    given = raw(rounds=3)

    def stop(record: Any) -> None:
        if record["round"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.run(given, tmp_path / "run", stop)
    assert tomllib.loads((tmp_path / "run" / "config.toml").read_text())["data"]["categories"] == {}
    fleet.grid.sent.clear()
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("[data.categories]\n", ""))  # as an older version wrote it
    fleet.run(given, tmp_path / "run")
    assert "columns" not in asked(fleet)
    fleet.run(raw(rounds=3, data={"categories": {}}), tmp_path / "none")
    assert "columns" not in asked(fleet)
    assert lines(tmp_path / "none") == lines(tmp_path / "run")


def test_text_at_one_node_and_numbers_at_another_are_named(fleet: Fleet, tmp_path: Path) -> None:
    files = mixed(fleet, tmp_path)
    files[0].write_text(files[0].read_text().replace(",f,", ",0,").replace(",m,", ",1,"))
    about = {"features": ["age", "sex"], "target": "ill", "labels": [0, 1]}
    with pytest.raises(InputError, match="'sex' has text in clinic-b, clinic-c and numbers in clinic-a; make"):
        fleet.run(raw(data=about), tmp_path / "run")


def test_text_is_refused_where_the_config_says_that_there_is_none(fleet: Fleet, tmp_path: Path) -> None:
    path, *_ = mixed(fleet, tmp_path)
    about = {"features": list(COLUMNS_OF_ALL_KINDS), "target": "ill", "labels": [0, 1], "categories": {}}
    config, _ = resolve(raw(data=about), Facts("classification", 2))
    node = rows.Node("clinic-a", tmp_path / "s", data=str(path))
    with pytest.raises(InputError, match=r"clinic-a.csv: expected a finite number in column 'sex'.*data.categories"):
        rows.load_rows(config, node, {})
    with pytest.raises(InputError, match=r"data.fill goes with data.missing"):
        fleet.run(raw(data={**about, "fill": {"dose": 1.0}}), tmp_path / "run")
    with pytest.raises(InputError, match="got 'weight'; the features are age, sex, ward, dose"):
        fleet.run(raw(data={**about, "categories": ["weight"]}), tmp_path / "run")


@pytest.mark.parametrize(
    ("key", "value"),
    [("missing", -1), ("rows", 1.5), ("rows", True), ("total", None), ("names", {"f": "many"}), ("further", 1)],
)
def test_counts_that_no_node_would_send_are_refused(key: str, value: Any) -> None:
    counts = {"rows": 2, "missing": 0, "numbers": 2, "integers": 2, "total": 3.0, "most": 2, "different": True}
    counts |= {"categorical": False, "many": False, "names": {}}
    sound = Envelope({"columns": json.dumps([{"age": counts}, {"age": counts}])}, {})
    assert read_counts(sound, ["age"])[0]["age"].rows == 2
    odd = Envelope({"columns": json.dumps([{"age": counts}, {"age": {**counts, key: value}}])}, {})
    with pytest.raises(InvalidMessage, match="expected counts of columns from a node"):
        read_counts(odd, ["age"])
    with pytest.raises(InvalidMessage, match="expected counts of columns from a node"):
        read_counts(sound, ["age", "dose"])
