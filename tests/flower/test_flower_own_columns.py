"""Columns of nodes' own files that are text, codes or have gaps: found from names, counts and sums alone."""

from __future__ import annotations

import csv
import json
import os
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_runs import Fleet, events, in_process, lines
from own_files import SITES, node_of, own, raw

from fedstein.errors import InputError
from fedstein.federation.secure_sum.collector import TooFew
from fedstein.federation.secure_sum.wire import PHASES
from fedstein.flower.launch.appdir import flatten, write_app
from fedstein.flower.launch.processes import Fleet as RealFleet
from fedstein.flower.messages import Envelope, InvalidMessage
from fedstein.flower.node import rows
from fedstein.flower.node.columns import column_sums
from fedstein.flower.records import from_record
from fedstein.flower.server.columns import find_columns, read_counts
from fedstein.flower.server.events import Events
from fedstein.flower.server.transport import GridTransport
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts

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


class Lost:
    """Clients that are not reached from one phase of the second sum on."""

    def __init__(self, fleet: Fleet, clients: set[int], phase: str):
        self.sums, self.clients, self.phase, self.heads = set[str](), clients, phase, list[dict[str, Any]]()
        fleet.grid.before, fleet.grid.meddle = self.reached, self.seen

    def reached(self, request: Any) -> bool:
        head = from_record(request.content).head
        if "phase" not in head:
            return True
        self.sums.add(head["session"])
        gone = len(self.sums) > 1 and PHASES.index(head["phase"]) >= PHASES.index(self.phase)
        return not (gone and head["client"] in self.clients)

    def seen(self, request: Any, reply: Any) -> Any:
        self.heads.append(dict(from_record(reply.content).head))
        return reply


def found_by(fleet: Fleet, tmp_path: Path, log: Events, secure: bool) -> dict[str, Any]:
    about = {"features": ["age", "sex", "ward", "dose"], "target": "ill", "labels": [0, 1], "missing": "mean"}
    given = raw(data={**about, "categories": ["ward"]}, partition={"clients": 4})
    given |= {"privacy": {"sums": "secure"}} if secure else {}
    given["engine"] = {**given["engine"], "kind": "flower", "on_missing": "proceed", "report_timeout": 0.3}
    fleet.grid.nodes.clear()
    for number, name in enumerate((*SITES, "clinic-d")):
        path = mixed_file(tmp_path / f"{name}.csv", number)
        fleet.grid.nodes[300 + number] = node_of(name, path, tmp_path, COLUMNS_OF_ALL_KINDS)
    config, _ = resolve(given, Facts("classification", 2))
    return find_columns(GridTransport(fleet.grid, log), config, log, "r1").keys


@pytest.mark.slow
def test_a_secure_sum_of_counts_finds_what_plain_counts_find(fleet: Fleet, tmp_path: Path) -> None:
    """No client's names or counts are in any reply; a client that drops out leaves what the others have."""
    log = Events(lambda line: None)
    plain = found_by(fleet, tmp_path, log, secure=False)
    lost = Lost(fleet, set(), "keys")
    secure = found_by(fleet, tmp_path, log, secure=True)
    assert secure["categories"] == plain["categories"] == {"sex": ["f", "m"], "ward": ["1", "2", "3", "4", "5"]}
    assert secure["fill"].keys() == plain["fill"].keys()
    assert secure["fill"]["dose"] == pytest.approx(plain["fill"]["dose"], rel=1e-13)
    assert not [head for head in lost.heads if "columns" in head]
    assert len(lost.sums) == 2
    lost = Lost(fleet, {3}, "masked")
    without = found_by(fleet, tmp_path, log, secure=True)
    assert without["categories"] == {"sex": ["f", "m"], "ward": ["1", "2", "3", "4"]}
    assert json.loads(log.early[-1])["without"] == ["clinic-d"]
    Lost(fleet, {2, 3}, "shares")
    with pytest.raises(TooFew, match="nothing was revealed"):
        found_by(fleet, tmp_path, log, secure=True)


def test_places_that_are_none_are_refused(tmp_path: Path) -> None:
    node = rows.read_node(node_of("a", mixed_file(tmp_path / "a.csv", 0), tmp_path, ("age", "sex")))
    about = {"features": ["age", "sex"], "target": "ill", "labels": [0, 1]}
    config, _ = resolve(
        raw(data=about, engine={"kind": "flower"}, privacy={"sums": "secure"}), Facts("classification", 2)
    )
    for wrong in (np.array([1, 0]), np.array([2]), np.array([-1]), np.array([0.0])):
        with pytest.raises(InvalidMessage, match="the places of columns"):
            column_sums(Envelope({"run": "r1"}, {"places": wrong}), config, node)


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


@pytest.mark.slow
def test_text_of_real_nodes_is_that_of_the_loopback_grid(fleet: Fleet, tmp_path: Path) -> None:
    """Real processes, with a category that one node alone has: the same columns, and the same bits."""
    files = mixed(fleet, tmp_path)
    files[2].write_text(files[2].read_text().replace(",f,", ",x,"))
    about = {"features": ["age", "sex", "ward"], "target": "ill", "labels": [0, 1]}
    fleet.run(raw(data=about, rounds=2), tmp_path / "loopback")
    waits = {"kind": "flower", "report_timeout": 60.0, "train_timeout": 60.0, "start_timeout": 120.0, "patience": 60.0}
    given = raw(data=about, rounds=2, engine=waits)
    app = write_app(tmp_path / "app", {**flatten(given), "out": str(tmp_path / "real")}).parent
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    variables = {"JAX_COMPILATION_CACHE_DIR": cache} if cache else None
    with RealFleet(tmp_path / "fleet", variables=variables, patience=120) as real:
        real.start_link()
        for name, node in zip(SITES, fleet.grid.nodes.values(), strict=True):
            real.start_node(name, {**node, "state-dir": str(tmp_path / "real-state" / name)}, wait=False)
        run = real.submit(app)
        end = time.monotonic() + 240
        while not (tmp_path / "real" / "summary.json").exists():
            assert time.monotonic() < end, real.logs(run)[-3000:]
            time.sleep(0.2)
    config = tomllib.loads((tmp_path / "real" / "config.toml").read_text())["data"]
    assert config["categories"] == {"sex": ["f", "m", "x"]}
    facts = [json.loads((tmp_path / name / "data.json").read_text()) for name in ("real", "loopback")]
    assert facts[0]["features"] == facts[1]["features"] == ["age", "sex=f", "sex=m", "sex=x", "ward"]
    clients = [json.loads((tmp_path / name / "clients.json").read_text()) for name in ("real", "loopback")]
    assert [[client["name"] for client in each] for each in clients] == [list(SITES), list(SITES)]
    assert lines(tmp_path / "real") == lines(tmp_path / "loopback")
