"""Every message of the protocol: protected, declared public, or refused with a sentence; on nodes and in process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.errors import InputError
from fedstein.federation.client import ClientProgram, HeldOut
from fedstein.flower.messages import FORMAT, OK, REFUSED, Envelope
from fedstein.flower.node import private
from fedstein.flower.node.handlers import HANDLERS, handle
from fedstein.flower.node.rows import Node, read_node
from fedstein.privacy.guard import GATES, OPEN, PROTECTED, Unprotected, refuse
from fedstein.privacy.settings import PrivacySettings
from fedstein.privacy.shared_noise import SharedNoise
from fedstein.runs.config import Config, resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run

RAW: dict[str, Any] = {
    "seed": 3,
    "data": {"name": "breast_cancer"},
    "partition": {"clients": 3},
    "algorithm": {"particles": 4},
    "engine": {"kind": "flower", "threads": 1},
    "privacy": {"kind": "record", "epsilon": 2.0, "visits": 2},
}


NETWORK: dict[str, Any] = {"model": {"kind": "bnn_classifier", "hidden": [3]}}
WIDTHS = {"blr": 31, "network": 101}  # of the point that clients are asked at
MODELS: dict[str, dict[str, Any]] = {"blr": {}, "network": NETWORK}
of_each_model = pytest.mark.parametrize("model", MODELS)


def config_of(model: str = "blr", **privacy: Any) -> Config:
    raw = {**RAW, **MODELS[model], "privacy": {**RAW["privacy"], **privacy}}
    return resolve(raw, facts_of(load_dataset(raw)))[0]


def ask(kind: str, node: Node, config: Config, arrays: dict[str, np.ndarray] | None = None, **head: Any) -> Envelope:
    whole = {"format": FORMAT, "run": "abc", "kind": kind, "round": 1, "client": 0, "config": config.to_toml()}
    whole |= {"setup": "", "accepted": "", "accepted_round": 0, "held": "", **head}
    return handle(Envelope(whole, arrays or {}), node)


def node_in(folder: Path, **more: Any) -> Node:
    return read_node({"partition-id": 0, "state-dir": str(folder / "state"), **more})


def test_the_gate_knows_every_message_kind_of_the_protocol() -> None:
    assert set(GATES) == set(HANDLERS)
    settings = PrivacySettings(kind="record")
    refused = {kind for kind in GATES if GATES[kind] not in (OPEN, PROTECTED)}
    assert refused == set(HANDLERS) - {"hello", "train"}
    for kind in (*refused, "a kind of tomorrow"):
        with pytest.raises(Unprotected, match=r"privacy.kind = 'record'"):
            refuse(kind, settings)
        refuse(kind, PrivacySettings())
    refuse("scale", PrivacySettings(kind="record", public=["scaling"]))
    with pytest.raises(Unprotected):
        refuse("columns", PrivacySettings(kind="record", public=["scaling"]))


@of_each_model
def test_a_node_answers_what_is_protected_and_refuses_the_rest(model: str, tmp_path: Path) -> None:
    node, config = node_in(tmp_path), config_of(model)
    for kind in HANDLERS:
        if kind in ("hello", "train"):
            continue
        reply = ask(kind, node, config, {"particles": np.zeros((4, 32), np.float32)})
        assert reply.head["status"] == REFUSED, kind
        assert not reply.arrays
        assert "not protected" in reply.head["reason"]
        assert not node.state_dir.exists()  # before a row was read
    reply = ask("hello", node, config)
    assert (reply.head["status"], reply.head["rows"]) == (OK, private.UNKNOWN)
    greetings = {ask("hello", node_in(tmp_path / str(k)), config).head["data"] for k in range(2)}
    assert greetings == {reply.head["data"]}  # the digest of nothing, the same for everybody
    assert ask("hello", node, config_of(public=["rows"])).head["rows"] > 50


@of_each_model
def test_a_release_of_a_node_is_noisy_in_its_ledger_and_the_same_when_asked_again(model: str, tmp_path: Path) -> None:
    node, config = node_in(tmp_path), config_of(model)
    point = {"point": np.zeros(WIDTHS[model], np.float32)}
    reply = ask("train", node, config, point)
    assert reply.head["status"] == OK, reply.head
    sent, gradients, second = {
        "blr": ({"gradients", "points", "moments", "visits"}, "gradients", "moments"),
        "network": ({"gradient", "variance", "curvature", "visits"}, "gradient", "curvature"),
    }[model]
    assert set(reply.arrays) == sent
    ledger = node.state_dir / "privacy" / "ledger.jsonl"
    assert [json.loads(line).get("what") for line in ledger.read_text().splitlines()] == [None, "gradient", second]
    again = ask("train", node, config, point)
    for name, array in reply.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    (node.state_dir / "abc" / "pending.safetensors").unlink()  # as after a kill between ledger and state
    third = ask("train", node, config, point)
    np.testing.assert_array_equal(third.arrays[gradients], reply.arrays[gradients])
    assert len(ledger.read_text().splitlines()) == 3
    # Another node with the same rows has another secret, so other noise.
    other = ask("train", node_in(tmp_path / "other"), config, point)
    # For a network with weights of zero, the gradients of most weights are zero: there is nothing but noise.
    assert np.all(np.atleast_2d(other.arrays[gradients])[0] != np.atleast_2d(reply.arrays[gradients])[0])
    # A server that starts over with other points and a large budget is refused when the budget is spent.
    greedy = config_of(model, epsilon=90.0)
    refused = ask("train", node, greedy, {"point": np.ones(WIDTHS[model], np.float32)}, run="xyz")
    assert refused.head["status"] == REFUSED
    assert "its budget is 2; nothing was released" in refused.head["reason"]


def test_the_operators_budget_decides(tmp_path: Path) -> None:
    node = node_in(tmp_path, epsilon=0.5, delta=1e-5)
    refused = ask("train", node, config_of(), {"point": np.zeros(31, np.float32)})
    assert "its budget is 0.5" in refused.head["reason"]
    raw = {**RAW, "privacy": {"kind": "none"}}
    open_run = resolve(raw, facts_of(load_dataset(raw)))[0]
    assert "answers private runs alone" in ask("hello", node, open_run).head["reason"]
    for wrong in ({"epsilon": 1.0}, {"epsilon": -1, "delta": 1e-5}, {"epsilon": "x", "delta": 1e-5}):
        with pytest.raises(InputError, match="epsilon"):
            node_in(tmp_path, **wrong)


@of_each_model
def test_in_process_every_way_out_of_a_client_passes_the_gate(model: str) -> None:
    raw = {**RAW, **MODELS[model], "engine": {"threads": 1}}
    config, _ = resolve(raw, facts_of(load_dataset(raw)))
    run = prepare_run(config, load_dataset(raw))
    program, shard = run.federation.program, run.engine.shards[0]  # type: ignore[attr-defined]
    held = HeldOut(None, np.zeros(0))  # type: ignore[arg-type]
    ways: dict[str, Any] = {
        "report": lambda: program.report(1, 0, None, None, shard),  # type: ignore[arg-type]
        "evaluate": lambda: program.evaluate(jnp.zeros((1, 1)), held),
        "expand": lambda: program.expand({}, shard),
        "expand_at_nodes": lambda: program.expand_at_nodes({}, shard),
        "weigh": lambda: program.weigh({}, shard),
        "release_share": lambda: program.release_share(1, 0, {}, shard, SharedNoise("a", 3)),  # of a secure sum alone
    }
    # Whatever of a program takes rows is here, or makes them ready, or is ``train``.
    harmless = {"train", "shard", "held_out", "rows_reported", "prepare", "state_after"}
    public = {name for name, item in vars(ClientProgram).items() if callable(item) and not name.startswith("_")}
    assert public - harmless == set(ways)
    for call in ways.values():
        with pytest.raises(Unprotected, match="not protected"):
            call()
