"""Plug-ins over Flower: a node imports those that its operator has listed, and then the bits are those in process."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from flower_runs import BLR, QUICK, Fleet, events, in_process, lines, replace_arrays, settings
from flwr.app import Message
from odd_codecs import SCALE

from fedstein.errors import FedsteinError, InputError
from fedstein.flower.messages import FORMAT, OK, REFUSED, Envelope, digest
from fedstein.flower.node.handlers import handle
from fedstein.flower.node.rows import Node
from fedstein.flower.records import HEAD, from_record
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset

# family: the import path of a plug-in, and the config that names it
PLUGINS: dict[str, tuple[str, dict[str, Any]]] = {
    "scheme": (
        "plugins.loss_scheme:LOSS",
        {"selection": {"kind": "plugins.loss_scheme:LOSS", "sharpness": 2.0}},
    ),
    "site": (
        "plugins.tangent_site:TANGENT",
        {"model": {"kind": "blr"}, "sites": {"kind": "plugins.tangent_site:TANGENT", "trust": 0.5}},
    ),
    "method": (
        "plugins.laplace_method:LAPLACE",
        {"model": {"kind": "blr"}, "algorithm": {"kind": "plugins.laplace_method:LAPLACE", "inflation": 2.0}},
    ),
    "model": ("plugins.ridge_model:RIDGE", {"model": {"kind": "plugins.ridge_model:RIDGE", "ridge": 0.5}}),
    "metric": ("plugins.top_two_metric:TOP_TWO", {"evaluate": {"metrics": ["plugins.top_two_metric:TOP_TWO"]}}),
    "codec": ("plugins.bfloat16_codec:BFLOAT16", {"channel": {"codec": "plugins.bfloat16_codec:BFLOAT16"}}),
    "kernel": (
        "plugins.imq_kernel:IMQ",
        {"algorithm": {"kernel": "plugins.imq_kernel:IMQ"}, "selection": {"kind": "ksd"}},
    ),
}


def listed(fleet: Fleet, plugins: str) -> Fleet:
    """Every node of the fleet with this list of plug-ins in its node config."""
    for node in fleet.grid.nodes.values():
        node["plugins"] = plugins
    return fleet


def config_text(raw: dict[str, Any]) -> str:
    """The config as the server sends it."""
    raw = {**raw, "engine": {"kind": "flower", "threads": 1}}
    return resolve(raw, facts_of(load_dataset(raw)))[0].to_toml()


def said(text: str, folder: Path, kind: str = "hello", plugins: tuple[str, ...] = ()) -> dict[str, Any]:
    """The head of a node's reply."""
    head = {"format": FORMAT, "kind": kind, "run": "r1", "round": 1, "client": 0, "config": text, "setup": ""}
    return handle(
        Envelope({**head, "accepted": "", "accepted_round": 0}, {}), Node("n", folder, 0, plugins=plugins)
    ).head


@pytest.mark.parametrize("family", PLUGINS)
def test_a_plugin_that_is_listed_gives_the_same_bits(family: str, fleet: Fleet, tmp_path: Path) -> None:
    path, more = PLUGINS[family]
    raw = settings(BLR, **more, rounds=3)
    here = in_process(raw, tmp_path / "local")
    there = listed(fleet, path.partition(":")[0]).run(raw, tmp_path / "flower")
    assert lines(here) == lines(there)
    for name in ("posterior.safetensors", "clients.json"):
        assert (here / name).read_bytes() == (there / name).read_bytes()
    assert {event["event"] for event in events(there)} == {"joined"}


@pytest.mark.parametrize("family", PLUGINS)
def test_a_plugin_that_is_not_listed_is_refused(family: str, tmp_path: Path) -> None:
    """Although this process has imported it: the server, which is in the same process here, uses it."""
    path, more = PLUGINS[family]
    module = path.partition(":")[0]
    text = config_text(settings(BLR, **more))
    assert said(text, tmp_path, plugins=(module,))["status"] == OK, "so that there is something to forget"
    assert said(text, tmp_path, plugins=(path,))["status"] == OK, "the whole import path will do too"
    for kind in ("hello", "scale", "sums", "ask", "train", "evaluate"):
        for plugins in ((), ("plugins", "plugins.another"), (module + "x",)):
            reply = said(text, tmp_path, kind, plugins)
            assert reply["status"] == REFUSED
            assert f"plug-in '{path}' is not listed on this node" in reply["reason"]
            assert f'plugins="{module}" in the node config' in reply["reason"]
            assert "not the config of a run" not in reply["reason"], "the config is a good one"


def test_a_run_says_which_plugin_its_nodes_do_not_have(fleet: Fleet, tmp_path: Path) -> None:
    path, more = PLUGINS["scheme"]
    raw = settings(BLR, **more, rounds=2, engine={**QUICK, "start_timeout": 0.5, "on_missing": "proceed"})
    with pytest.raises(FedsteinError, match="no client has connected"):
        fleet.run(raw, tmp_path / "none")
    for node in (100, 102):
        fleet.grid.nodes[node]["plugins"] = " plugins.another , plugins.loss_scheme"
    out = fleet.run(raw, tmp_path / "two")
    (away,) = [entry for entry in events(out) if entry["event"] == "turned away"]
    assert away["name"] == "client-1"
    assert path in away["reason"]
    assert {client for line in lines(out) for client in line["selected"]} <= {0, 2}


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("selection", "kind"),
        ("sites", "kind"),
        ("algorithm", "kind"),
        ("model", "kind"),
        ("channel", "codec"),
        ("algorithm", "kernel"),
        ("evaluate", "metrics"),
    ],
)
def test_nothing_is_imported_that_is_not_listed(
    section: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unlisted_plugin.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    raw = settings(BLR, engine={"kind": "flower"})
    config = resolve(raw, facts_of(load_dataset(raw)))[0].to_dict()
    path = "unlisted_plugin:PART"
    config[section][key] = [path] if key == "metrics" else path
    reply = said(tomli_w.dumps(config), tmp_path / "state")
    assert reply["status"] == REFUSED
    assert f"plug-in '{path}' is not listed on this node" in reply["reason"]
    assert "unlisted_plugin" not in sys.modules


def test_sixty_four_bits_travel_whole_in_a_run_of_thirty_two(fleet: Fleet, tmp_path: Path) -> None:
    raw = settings(BLR, channel={"codec": "odd_codecs:FIXED"}, selection={"kind": "ksd"}, rounds=2)
    here = in_process(raw, tmp_path / "local")
    there = listed(fleet, "odd_codecs").run(raw, tmp_path / "flower")
    assert lines(here) == lines(there)
    assert (here / "posterior.safetensors").read_bytes() == (there / "posterior.safetensors").read_bytes()


def test_a_codec_whose_arrays_do_not_travel_is_named(fleet: Fleet, tmp_path: Path) -> None:
    raw = settings(BLR, channel={"codec": "odd_codecs:SIGNS"}, engine=QUICK)
    with pytest.raises(InputError, match=r"channel\.codec = 'signs' writes .* as bool, which does not travel"):
        listed(fleet, "odd_codecs").run(raw, tmp_path / "run")


def first_of(arrays: dict[str, np.ndarray], suffix: str = "") -> str:
    """The first array whose name ends so, and that is no scale unless scales are asked for."""
    return next(name for name in sorted(arrays) if name.endswith(suffix) and (suffix or not name.endswith(SCALE)))


def changed(name: str, array: np.ndarray, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**arrays, name: array}


SCALED, BFLOAT = "odd_codecs:SCALED", "plugins.bfloat16_codec:BFLOAT16"
# What a client sends in place of its arrays, and what the server says of it.
MALFORMED: dict[str, tuple[str, Any, str]] = {
    "decode raises": (
        SCALED,
        lambda a: changed(first_of(a, SCALE), np.array(-1, np.float32), a),
        "the codec 'scaled' cannot decode its .*: ZeroDivisionError: a scale of -1",
    ),
    "a scale is NaN": (
        SCALED,
        lambda a: changed(first_of(a, SCALE), np.array(np.nan, np.float32), a),
        "the codec 'scaled' cannot decode its",
    ),
    "decoded numbers overflow": (
        SCALED,
        lambda a: changed(
            first_of(a), np.full_like(a[first_of(a)], 32767), changed(first_of(a) + SCALE, np.float32(3e38), a)
        ),
        "not finite",
    ),
    "a scale is missing": (
        SCALED,
        lambda a: {name: array for name, array in a.items() if name != first_of(a, SCALE)},
        "expected arrays",
    ),
    "another shape": (SCALED, lambda a: changed(first_of(a), np.zeros((2, 1), np.int16), a), "expected '.*' as int16"),
    "another dtype": (
        SCALED,
        lambda a: changed(first_of(a), a[first_of(a)].astype(np.float32), a),
        "expected '.*' as int16",
    ),
    "integers that stand for NaN": (
        BFLOAT,
        lambda a: changed(first_of(a), np.full_like(a[first_of(a)], 0x7FC0), a),
        "not finite",
    ),
}


@pytest.mark.parametrize("kind", ["ask", "train"])
@pytest.mark.parametrize("malformed", MALFORMED)
def test_arrays_that_a_codec_cannot_decode_are_rejected_with_a_reason(
    malformed: str, kind: str, fleet: Fleet, tmp_path: Path
) -> None:
    """The run goes on with the other clients; nothing that arrives ends the server."""
    codec, change, reason = MALFORMED[malformed]

    def meddle(request: Message, reply: Message) -> Message:
        head = from_record(request.content).head
        if head["kind"] == kind and head["client"] == 1:
            arrays = change(from_record(reply.content).arrays)
            replace_arrays(reply, arrays)
            if kind == "train":  # a client that means it sends the receipt that belongs to these arrays
                reply.content[HEAD]["receipt"] = digest(arrays)
        return reply

    fleet.grid.meddle = meddle
    scheme = {"kind": "ksd"} if kind == "ask" else {"kind": "round_robin"}
    raw = settings(BLR, channel={"codec": codec}, selection=scheme, rounds=3, engine={**QUICK, "offences": 9})
    out = listed(fleet, codec.partition(":")[0]).run(raw, tmp_path / "run")
    rejected = [entry for entry in events(out) if entry["event"] == "rejected"]
    assert rejected
    assert {entry["name"] for entry in rejected} == {"client-1"}
    assert all(re.search(reason, entry["reason"]) for entry in rejected), rejected
    assert len(lines(out)) == 3
    assert all(1 not in line["selected"] for line in lines(out))
    assert any((line["faults"] or {}).get("rejected") == [1] for line in lines(out))
