"""Expected expansions over the network: the same sums as in process, bit for bit, and nodes that check the request."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from flower_runs import BLR, Fleet, events, in_process, lines, replace_arrays, settings
from flwr.app import Message

from fedstein.flower.messages import FORMAT, REFUSED, Envelope
from fedstein.flower.node.handlers import handle
from fedstein.flower.node.rows import Node
from fedstein.flower.records import from_record
from fedstein.inference.natural import implausible_site
from fedstein.inference.variational import Passes
from fedstein.runs import refining
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts

VARIATIONAL = {"kind": "curvature", "structure": "full", "expand": "variational"}


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.fixture(autouse=True)
def few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refining, "PASSES", Passes(most=3))


def refined(folder: Path) -> dict[str, object]:
    found = json.loads((folder / "summary.json").read_text())["refined"]
    return {key: value for key, value in found.items() if key != "seconds"}


def weights(folder: Path) -> dict[str, object]:
    found = json.loads((folder / "weights.json").read_text())
    return {key: value for key, value in found.items() if key != "seconds"}


def test_refined_sums_are_the_same_on_both_engines_and_the_barred_are_not_asked(fleet: Fleet, tmp_path: Path) -> None:
    raw = settings(BLR, sites=VARIATIONAL, selection={"kind": "round_robin", "barred": [1]}, rounds=2)
    here, there = in_process(raw, tmp_path / "local"), fleet.run(raw, tmp_path / "flower")
    assert lines(here) == lines(there)
    for name in ("posterior", "gaussian", "sums"):
        assert (here / f"{name}.safetensors").read_bytes() == (there / f"{name}.safetensors").read_bytes()
    assert refined(here) == refined(there)
    assert weights(here) == weights(there)
    assert (here / "weighted.safetensors").exists() == (there / "weighted.safetensors").exists()
    sent = [from_record(message.content) for message in fleet.grid.sent]
    asked = [envelope for envelope in sent if envelope.head["kind"] == "expand"]
    assert {envelope.head["client"] for envelope in asked} == {0, 2}
    assert len(asked) == refined(there)["asked"]
    size = sum(array.nbytes for envelope in asked for array in envelope.arrays.values())
    assert size == refined(there)["bytes_down"] == refined(there)["bytes_up"]
    others = [envelope for envelope in sent if envelope.head["kind"] in ("weigh", "nodes")]
    assert {envelope.head["client"] for envelope in others} == {0, 2}
    assert sum(a.nbytes for one in others for a in one.arrays.values()) == weights(there)["bytes_down"]
    said = [event["reason"] for event in events(there) if event["event"] == "after the rounds"]
    assert said[0].startswith("refining the sites")
    assert any(line.startswith("pass 1") for line in said)


def test_a_client_that_sends_nonsense_keeps_its_site_and_is_named(fleet: Fleet, tmp_path: Path) -> None:
    def meddle(request: Message, reply: Message) -> Message:
        head = from_record(request.content).head
        if head["kind"] == "expand" and head["client"] == 2:
            sent = from_record(reply.content).arrays
            replace_arrays(reply, {name: -array for name, array in sent.items()})
        return reply

    fleet.grid.meddle = meddle
    raw = settings(BLR, sites=VARIATIONAL, selection={"kind": "round_robin"}, rounds=3)
    out = fleet.run(raw, tmp_path / "run")
    assert refined(out)["unanswered"] == [2]
    assert refined(out)["without_site"] == []
    counts = refined(out)["asked_counts"]
    assert isinstance(counts, list)
    assert counts[2] == 1
    rejected = [event for event in events(out) if event["event"] == "rejected"]
    assert [event["name"] for event in rejected] == ["client-2"]
    assert "negative eigenvalue" in rejected[0]["reason"]


@pytest.mark.parametrize(
    ("kind", "expand", "arrays", "words"),
    [
        ("expand", "mean", {}, "sites.expand is not 'variational'"),
        ("expand", "variational", {"mean": zeros(32)}, "expected arrays"),
        ("expand", "variational", {"mean": zeros(32), "covariance": zeros(32, 32)}, "as float32 (528,)"),
        ("expand", "variational", {"mean": zeros(32) + np.nan, "covariance": zeros(528)}, "not finite"),
        ("nodes", "mean", {}, "sites.expand is not 'variational'"),
        ("nodes", "variational", {"means": zeros(2, 32), "covariances": zeros(3, 528)}, "float32 (2, 528)"),
        ("weigh", "mean", {}, "sites.expand is not 'variational'"),
        ("weigh", "variational", {}, "expected arrays"),
    ],
    ids=["not in the config", "missing", "shape", "not finite", "nodes", "nodes shape", "weigh", "weigh missing"],
)
def test_a_node_refuses_what_is_no_request(
    tmp_path: Path, kind: str, expand: str, arrays: dict[str, np.ndarray], words: str
) -> None:
    raw = settings(BLR, sites={**VARIATIONAL, "expand": expand}, engine={"kind": "flower"})
    config, _ = resolve(raw, Facts("classification", 2))
    head = {"format": FORMAT, "kind": kind, "round": 4, "client": 0, "run": "abc", "setup": ""}
    reply = handle(Envelope({**head, "config": config.to_toml()}, arrays), Node("somebody", tmp_path, partition=0))
    assert reply.head["status"] == REFUSED
    assert words in reply.head["reason"]


def test_a_site_that_is_no_site_is_implausible() -> None:
    assert implausible_site({"gradient": np.zeros(2), "precision": np.array([1.0, 0.0, 1.0])}) == ""
    assert "finite" in implausible_site({"gradient": np.array([0, np.inf]), "precision": np.zeros(3)})
    assert "negative" in implausible_site({"gradient": np.zeros(2), "precision": np.array([1.0, 2.0, 1.0])})
