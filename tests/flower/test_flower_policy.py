"""A node answers what its operator allows, and nothing else; what is refused is refused before any row is read."""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from flower_runs import BLR, QUICK, Fleet, events, settings
from own_files import COLUMNS, SITES, own, patients, raw, write

from fedstein import data
from fedstein.cli import main
from fedstein.errors import FedsteinError, InputError
from fedstein.flower.launch.appdir import flatten, read_app, write_app
from fedstein.flower.messages import FORMAT, OK, REFUSED, Envelope
from fedstein.flower.node import columns as node_columns
from fedstein.flower.node import rows
from fedstein.flower.node.handlers import HANDLERS, handle
from fedstein.flower.node.policy import (
    Policy,
    check_request,
    make_policy,
    messages_of,
    policy_text,
    read_policy,
    run_digest,
)
from fedstein.flower.node.rows import Node, policy_of, read_node
from fedstein.flower.records import from_record
from fedstein.runs.config import Config, resolve
from fedstein.runs.federate import facts_of, load_dataset

VARIATIONAL = {"kind": "curvature", "structure": "full", "expand": "variational"}


def config_of(given: dict[str, Any]) -> Config:
    given = {**given, "engine": {"kind": "flower", "threads": 1}}
    return resolve(given, facts_of(load_dataset(given)))[0]


def own_config(**sections: Any) -> Config:
    return config_of(raw(**sections))


def asked(kind: str, config: Config, node: Node) -> dict[str, Any]:
    """The head of a node's reply to a request without arrays."""
    head = {"format": FORMAT, "kind": kind, "run": "r1", "round": 1, "client": 0, "config": config.to_toml()}
    return handle(Envelope({**head, "setup": "", "accepted": "", "accepted_round": 0, "held": ""}, {}), node).head


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose reader fails the test."""

    def touched(*arguments: Any, **more: Any) -> Any:
        pytest.fail("a row was read")

    for module, name in ((rows.data, "load_rows"), (node_columns.data, "count_rows"), (rows, "read_kept")):
        monkeypatch.setattr(module, name, touched)
    monkeypatch.setattr(rows, "load_dataset", touched)


@pytest.fixture
def node(tmp_path: Path) -> Callable[..., Node]:
    """A node with a file of its own and a policy file: that of a config, changed."""

    def make(config: Config | None = None, **changes: Any) -> Node:
        found = make_policy(config or own_config()).model_dump(exclude_none=True)
        (tmp_path / "clinic.toml").write_text(tomli_w.dumps({**found, **changes}))
        path = write(tmp_path / "clinic-a.csv", *patients(0))
        about = {"data": str(path), "state-dir": str(tmp_path / "s"), "policy": str(tmp_path / "clinic.toml")}
        return read_node(about)

    return make


# what the server asks for beyond the policy of ``own_config()``: the config, and the words of the refusal
BEYOND: dict[str, tuple[dict[str, Any], str]] = {
    "target": ({"data": {"target": "smoker", "features": ["age", "dose"]}}, "data.target = 'smoker'; it allows: ill"),
    "feature": ({"data": {"features": [*COLUMNS, "hiv"]}}, "data.features = 'hiv'; it allows: age, dose, smoker"),
    "category": ({"data": {"categories": ["age"]}}, "data.categories = 'age'; it allows: nothing"),
    "model": ({"model": {"kind": "bnn_classifier"}}, "model.kind = 'bnn_classifier'; it allows: blr"),
    "method": ({"algorithm": {"kind": "fedavg"}}, "algorithm.kind = 'fedavg'; it allows: dsvgd"),
    "scheme": ({"selection": {"kind": "hip"}}, "selection.kind = 'hip'; it allows: ksd"),
    "site": ({"sites": {"kind": "particles"}}, "sites.kind = 'particles'; it allows: curvature"),
    "message": ({"sites": VARIATIONAL}, "; it allows: hello, columns, scale, ask, train, evaluate"),
    "batch": ({"algorithm": {"batch_size": 4}}, "algorithm.batch_size = 4; it allows no fewer than 5 rows"),
    "report": ({"selection": {"report_rows": 1}}, "selection.report_rows = 1; it allows no fewer than 5 rows"),
    "run": ({"seed": 2}, "does not allow this run: the digest of its config is"),
    "labels": ({"data": {"labels": ["x", "y"]}}, "does not allow this run: the digest of its config is"),
}


@pytest.mark.parametrize("kind", HANDLERS)
@pytest.mark.parametrize("beyond", BEYOND)
def test_every_kind_of_message_beyond_the_policy_is_refused_by_name(
    beyond: str, kind: str, node: Callable[..., Node], untouched: None
) -> None:
    change, words = BEYOND[beyond]
    reply = asked(kind, own_config(**change), node(**({} if beyond == "message" else {"messages": ["*"]})))
    assert reply["status"] == REFUSED
    assert reply["reason"].startswith("policy clinic.toml does not allow")
    assert words in reply["reason"]


@pytest.mark.parametrize("kind", ["expand", "nodes", "weigh", "sums"])
def test_a_message_that_the_config_has_no_use_for_is_refused(
    kind: str, node: Callable[..., Node], untouched: None
) -> None:
    reply = asked(kind, own_config(), node())
    assert f"does not allow the message = '{kind}'" in reply["reason"]


@pytest.mark.parametrize("kind", HANDLERS)
def test_without_a_policy_only_the_named_columns_are_read(kind: str, tmp_path: Path, untouched: None) -> None:
    about = {"data": str(tmp_path / "a.csv"), "state-dir": str(tmp_path), "target": "ill", "features": "age,dose"}
    node = read_node(about)
    for change, words in (
        ({"data": {"target": "smoker", "features": ["age"]}}, "the node config does not allow data.target = 'smoker'"),
        ({}, "the node config does not allow data.features = 'smoker'; it allows: age, dose"),
    ):
        reply = asked(kind, own_config(**change), node)
        assert reply["status"] == REFUSED
        assert words in reply["reason"]


def test_what_the_policy_allows_is_answered(node: Callable[..., Node]) -> None:
    made = node()
    for change in ({}, {"data": {"test_path": None}}, {"checkpoint": {"every": 3}}):
        assert asked("hello", own_config(**change), made)["status"] == OK
    assert asked("scale", own_config(), made)["status"] == OK
    free = node(runs=["*"], schemes=["*"])
    assert asked("hello", own_config(seed=9, selection={"kind": "hip"}), free)["status"] == OK


@pytest.mark.parametrize("kind", ["hello", "columns", "scale", "train", "evaluate"])
def test_too_few_rows_are_refused_without_their_number(kind: str, node: Callable[..., Node]) -> None:
    """60 rows, of which 12 are held out."""
    known = {} if kind == "columns" else {"categories": {}}
    config = own_config(data={"standardize": kind == "scale", **known})
    enough = {"evaluate": 13}.get(kind, 49)
    made = node(config, least_rows=enough, messages=["*"])
    reply = asked(kind, config, made)
    assert reply["status"] == REFUSED
    assert f"allows no answer from fewer than {enough} rows" in reply["reason"]
    assert "48" not in reply["reason"]
    assert "rows" not in reply or reply["rows"] is None


PRIVATE = {"kind": "record", "epsilon": 1.0, "delta": 1e-5}


class WithPrivacy:
    """A config with a section ``[privacy]``, whatever the version of the schema."""

    def __init__(self, config: Config, privacy: dict[str, Any]):
        self._config, self._privacy = config, privacy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)

    def to_dict(self) -> dict[str, Any]:
        return {**self._config.to_dict(), "privacy": self._privacy}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "privacy.kind = 'none'; it demands 'record'"),
        ({**PRIVATE, "kind": "none"}, "privacy.kind = 'none'"),
        ({**PRIVATE, "epsilon": 1.1}, "privacy.epsilon = 1.1; it allows at most 1"),
        ({**PRIVATE, "delta": 1e-4}, "privacy.delta = 0.0001; it allows at most 1e-05"),
        ({"kind": "record", "delta": 1e-5}, "privacy.epsilon = None"),
        (PRIVATE, "privacy.sums = 'plain'; it demands 'secure'"),
    ],
)
def test_a_run_must_be_at_least_as_private_as_the_policy_demands(given: dict[str, Any], words: str) -> None:
    config = own_config()
    found = make_policy(config).model_dump()
    policy = Policy.model_validate({**found, "runs": ["*"], "privacy": {**PRIVATE, "sums": "secure"}})
    with pytest.raises(InputError, match=words.replace(".", r"\.")):
        check_request(policy, "hello", WithPrivacy(config, given))  # type: ignore[arg-type]
    stricter = {"kind": "client", "epsilon": 0.5, "delta": 1e-6, "sums": "secure"}
    check_request(policy, "hello", WithPrivacy(config, stricter))  # type: ignore[arg-type]
    made = make_policy(WithPrivacy(config, {**PRIVATE, "sums": "secure"}))  # type: ignore[arg-type]
    assert made.privacy is not None
    assert made.privacy.model_dump() == {**PRIVATE, "sums": "secure"}


def test_the_digest_is_of_what_is_computed() -> None:
    base = run_digest(own_config())
    alike = [{"checkpoint": {"every": 3}}, {"data": {"labels": [0, 1]}}]
    assert {run_digest(own_config(**change)) for change in alike} == {base}
    other = [{"seed": 2}, {"rounds": 7}, {"data": {"labels": [1, 0]}}, {"evaluate": {"fraction": 0.5}}]
    assert base not in {run_digest(own_config(**change)) for change in other}


def test_a_policy_that_is_missing_broken_or_incomplete_allows_nothing(
    node: Callable[..., Node], tmp_path: Path, untouched: None
) -> None:
    made, file = node(), tmp_path / "clinic.toml"
    whole = tomllib.loads(file.read_text())
    for text, words in (
        (tomli_w.dumps({key: value for key, value in whole.items() if key != "schemes"}), "schemes"),
        (tomli_w.dumps({**whole, "scheems": ["*"]}), "scheems"),
        (tomli_w.dumps({**whole, "source": "me"}), "source"),
        ("targets = [", "cannot be read"),
    ):
        file.write_text(text)
        reply = asked("hello", own_config(), made)
        assert reply["status"] == REFUSED
        assert words in reply["reason"]
    file.unlink()
    assert "cannot be read" in asked("hello", own_config(), made)["reason"]


def test_plugins_are_those_of_the_policy(node: Callable[..., Node], untouched: None) -> None:
    config = own_config(selection={"kind": "plugins.loss_scheme:LOSS"})
    assert make_policy(config).plugins == ["plugins.loss_scheme:LOSS"]
    made = node(config, plugins=[])
    assert "is not listed on this node" in asked("hello", config, made)["reason"]
    assert policy_of(made) == read_policy(Path(made.policy_file))


@pytest.mark.parametrize("name", data.DATASETS)
def test_a_node_in_a_trial_loads_built_in_datasets_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that a config can say has it open a path."""
    info = data.DATASETS[name]
    assert ("path" in info.keys or "test_path" in info.keys) == (info.origin not in rows.BUILT_IN)
    monkeypatch.setattr(rows, "load_dataset", lambda given: (_ for _ in ()).throw(InputError("loaded")))
    config = config_of(settings(BLR)).model_copy(update={"data": own_config().data.model_copy(update={"name": name})})
    with pytest.raises(InputError, match="loaded" if info.origin in rows.BUILT_IN else "opens no path|own files"):
        rows.load_rows(config, Node("n", tmp_path, 0), {})


def allow(fleet: Fleet, tmp_path: Path, config: Config, **changes: Any) -> None:
    """Every node of the fleet gets a policy file, the second one with changes."""
    for number, about in enumerate(fleet.grid.nodes.values()):
        found = make_policy(config).model_dump(exclude_none=True) | (changes if number == 1 else {})
        path = tmp_path / f"{about['name']}.toml"
        path.write_text(tomli_w.dumps(found))
        about.pop("target"), about.pop("features")
        about["policy"] = str(path)


@pytest.mark.slow
def test_a_run_that_was_agreed_on_is_answered_by_what_the_policy_lists(fleet: Fleet, tmp_path: Path) -> None:
    """From the app folder that an operator has, the policy of the very run that the server plays."""
    given = raw(rounds=1, data={"missing": "mean"})
    own(fleet, tmp_path)
    write_app(tmp_path / "app", {**flatten(config_of(given).to_dict()), "out": "x"})
    agreed = {key: value for key, value in read_app(tmp_path / "app").items() if key != "out"}
    allow(fleet, tmp_path, config_of(agreed))
    fleet.run(given, tmp_path / "run")
    assert {entry["event"] for entry in events(tmp_path / "run")} <= {"joined", "columns", "sums", "set up", "note"}
    sent = {from_record(message.content).head["kind"] for message in fleet.grid.sent}
    assert sent <= set(messages_of(config_of(given)))
    assert {"columns", "scale", "train", "evaluate"} <= sent
    assert {"expand", "nodes", "weigh"} < set(messages_of(own_config(sites=VARIATIONAL)))


@pytest.mark.slow
def test_a_refusal_is_in_both_logs_and_the_others_go_on(
    fleet: Fleet, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    own(fleet, tmp_path)
    given = raw(rounds=1)
    allow(fleet, tmp_path, config_of(given), targets=["cured"])
    words = "policy clinic-b.toml does not allow data.target = 'ill'; it allows: cured"
    with caplog.at_level(logging.WARNING, "flwr"):
        fleet.run({**given, "engine": {**QUICK, "on_missing": "proceed", "start_timeout": 1.0}}, tmp_path / "run")
    turned = [entry for entry in events(tmp_path / "run") if entry["event"] == "turned away"]
    assert {(entry["name"], entry["reason"]) for entry in turned} == {(SITES[1], words)}
    assert any("refused" in line and words in line for line in caplog.messages)
    with pytest.raises(
        FedsteinError, match=r"clinic-b was turned away: policy clinic-b\.toml does not allow data\.target"
    ):
        fleet.run({**given, "engine": {**QUICK, "start_timeout": 0.5}}, tmp_path / "waits")


def test_the_command_writes_the_policy_of_a_config_and_of_an_app(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = raw()
    del given["engine"]
    (tmp_path / "study.toml").write_text(tomli_w.dumps(given))

    def printed(*words: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        assert stop.value.code == 0
        return capsys.readouterr().out

    text = printed("node", "policy", str(tmp_path / "study.toml"))
    config = config_of(given)
    assert text == policy_text(make_policy(config))
    (tmp_path / "clinic.toml").write_text(text)
    assert read_policy(tmp_path / "clinic.toml").runs == [run_digest(config)]
    commands = printed("deploy", "app", str(tmp_path / "app"), str(tmp_path / "study.toml"), "--nodes", "a,b,c")
    assert "--policy a.policy.toml" in commands
    changed = printed("node", "policy", str(tmp_path / "app"), "--least-rows", "9")
    assert tomllib.loads(changed) == tomllib.loads(text) | {"least_rows": 9}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.toml",), "found nothing at none.toml"),
        ((".",), "expected an app that fedstein deploy app wrote"),
        ((".", "--seed", "1"), "leave out --set, --seed and --preset"),
    ],
)
def test_mistakes_of_the_command(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["node", "policy", *words])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_facts_of_open_columns_do_not_change_what_was_agreed_on() -> None:
    """The server resolves the config once more when it has found categories; the digest stays."""
    about = {"features": list(COLUMNS), "target": "ill", "labels": [0, 1], "missing": "mean", "categories": ["smoker"]}
    before = own_config(data=about)
    after = own_config(data={**about, "categories": {"smoker": ["0", "1"]}, "fill": {"age": 60.0, "dose": 1000.0}})
    assert json.dumps(before.to_dict()) != json.dumps(after.to_dict())
    assert run_digest(before) == run_digest(after)


def test_a_policy_of_a_default_config_allows_the_passes_after_the_rounds() -> None:
    given = raw()
    del given["sites"]
    config, passes = config_of(given), {"expand", "nodes", "weigh"}
    policy = make_policy(config)
    assert passes <= set(policy.messages)
    for kind in messages_of(config):
        check_request(policy, kind, config)
    assert not passes & set(make_policy(own_config(sites={"expand": "mean"})).messages)
