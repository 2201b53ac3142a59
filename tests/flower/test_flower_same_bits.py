"""One algorithm, two engines: the same lines and the same posterior, bit for bit, over real serialised messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import pytest
from flower_runs import BLR, BNN, Fleet, events, in_process, lines, replace_arrays, settings
from flwr.app import Message

from fedstein.federation import round_context
from fedstein.federation.spill_cache import Kept, SpillCache
from fedstein.flower import records
from fedstein.flower.messages import FORMAT, REFUSED, Envelope
from fedstein.flower.node.handlers import handle
from fedstein.flower.node.rows import Node
from fedstein.flower.records import from_record
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts

SITES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "particles-log": (BNN, {"kind": "particles", "density": "log"}),
    "particles-reference": (BLR, {"kind": "particles", "density": "reference"}),
    "full": (BLR, {"kind": "curvature", "structure": "full"}),
    "diagonal": (BNN, {"kind": "curvature", "structure": "diagonal"}),
    "eigen": (BNN, {"kind": "curvature", "structure": "eigen"}),
    "eigen-low-rank": (BNN, {"kind": "curvature", "structure": "eigen", "rank": 5}),
}
SCHEMES = ("round_robin", "random", "ksd", "hip", "innovation")
PAIRS = [(s, k) for k in SITES for s in SCHEMES if not (s == "innovation" and k.startswith("particles"))]


def assert_same(fleet: Fleet, raw: dict[str, Any], folder: Path) -> None:
    assert_equal(in_process(raw, folder / "local"), fleet.run(raw, folder / "flower"))


def assert_equal(here: Path, there: Path) -> None:
    assert lines(here) == lines(there)
    for name in ("posterior.safetensors", "clients.json"):
        assert (here / name).read_bytes() == (there / name).read_bytes()


@pytest.mark.parametrize(("scheme", "kind"), PAIRS)
def test_every_scheme_with_every_kind_of_sites(fleet: Fleet, tmp_path: Path, scheme: str, kind: str) -> None:
    base, sites = SITES[kind]
    assert_same(fleet, settings(base, sites=sites, selection={"kind": scheme}), tmp_path)


@pytest.mark.parametrize(
    "more",
    [
        {"selection": {"kind": "ksd", "per_round": 2}},
        {"selection": {"kind": "hip", "pool": 2, "report_rows": 10, "draw": "aged"}},
        {"algorithm": {"kind": "parallel_dsvgd"}},
        {"algorithm": {"kind": "parallel_dsvgd"}, "sites": {"kind": "particles"}},
        {"algorithm": {"kind": "fedavg", "particles": 1}},
        {"selection": {"kind": "ksd", "barred": [1], "max_probability": 0.6}},
        {"selection": {"kind": "hip", "projection": 16}},
        {"channel": {"codec": "int4", "assignment": "mixed", "update": "mixed"}},
        {"channel": {"codec": "int4", "packing": "deflate"}},
    ],
    ids=[
        "two-a-round",
        "pool",
        "parallel",
        "parallel-particles",
        "fedavg",
        "barred",
        "projection",
        "few-bits",
        "packed",
    ],
)
def test_other_ways_to_play_a_round(fleet: Fleet, tmp_path: Path, more: dict[str, Any]) -> None:
    assert_same(fleet, settings(BNN, **more), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["plain", "int4"])
def test_packing_changes_bytes_and_nothing_else(tmp_path: Path, codec: str) -> None:
    few = [
        in_process(settings(BNN, channel={"codec": codec, "packing": packing}, rounds=3), tmp_path / packing)
        for packing in ("none", "deflate")
    ]
    (before, after), keys = map(lines, few), ("bytes_down", "bytes_up")
    for one, other in zip(before, after, strict=True):
        # Arrays of a few hundred bytes gain nothing in four bits; the table of contents is what they cost.
        assert all(other[key] < (0.95 if codec == "plain" else 1.3) * one[key] for key in keys)
        assert {k: v for k, v in one.items() if k not in keys} == {k: v for k, v in other.items() if k not in keys}
    assert len({(folder / "posterior.safetensors").read_bytes() for folder in few}) == 1


def test_a_projection_of_scores_needs_fewer_bytes_and_renews_no_site(tmp_path: Path) -> None:
    scores = settings(BNN, selection={"kind": "hip"}, sites={"renew": False}, rounds=1)
    projected = settings(BNN, selection={"kind": "hip", "projection": 16}, rounds=1)
    whole, small = (lines(in_process(raw, tmp_path / str(k)))[0] for k, raw in enumerate((scores, projected)))
    dim = 6 * 64 + 6 + 10 * 6 + 10
    assert whole["bytes_up"] - small["bytes_up"] == 3 * 4 * 4 * (dim - 16)  # clients, particles, bytes of a number
    assert all(value is not None for value in small["reports"])


def test_sites_past_the_budget_wait_in_files_at_the_server(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_back = []

    class Tight(SpillCache):
        def __init__(self, budget: int):
            assert budget == 7 << 20  # engine.budget is in MiB
            super().__init__(1)  # for the latest site alone

        def load(self, kept: Kept) -> dict[str, jax.Array]:
            if kept.arrays is None:
                read_back.append(kept.number)
            return super().load(kept)

    raw = settings(BLR, selection={"kind": "round_robin"}, engine={"budget": 7})
    here = in_process(raw, tmp_path / "local")
    monkeypatch.setattr(round_context, "SpillCache", Tight)
    assert_equal(here, fleet.run(raw, tmp_path / "flower"))
    assert read_back


def test_a_device_that_a_node_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    if any(device.platform != "cpu" for device in jax.devices()):
        pytest.skip("there is an accelerator")
    config, _ = resolve(settings(BLR, engine={"kind": "flower", "device": "gpu"}), Facts("classification", 2))
    head = {"format": FORMAT, "kind": "ask", "round": 1, "client": 0, "config": config.to_toml()}
    reply = handle(Envelope(head, {}), Node("somebody", tmp_path, partition=0))
    assert reply.head["status"] == REFUSED
    assert "engine.device = 'gpu'" in reply.head["reason"]


@pytest.mark.parametrize("base", [BLR, BNN], ids=["blr", "bnn"])
def test_clients_that_evaluate(fleet: Fleet, tmp_path: Path, base: dict[str, Any]) -> None:
    assert_same(fleet, settings(base, evaluate={"where": "clients", "every": 2}, selection={"barred": [2]}), tmp_path)
    found = [(tmp_path / name / "clients-evaluation.json").read_bytes() for name in ("local", "flower")]
    assert found[0] == found[1]
    assert [entry["id"] for entry in json.loads(found[0])["clients"]] == [0, 1]
    names = [(tmp_path / name / "summary.json").read_text() for name in ("local", "flower")]
    bytes_of = [json.loads(text)["evaluation"] for text in names]
    assert bytes_of[0] == bytes_of[1]


def test_sums_that_make_no_sense_are_rejected(fleet: Fleet, tmp_path: Path) -> None:
    """More right answers than rows, bins that do not add up, a NaN: named, and not counted."""
    wrong = iter(({"correct": 1e6}, {"bin_rows": -1.0}, {"nll": float("nan")}))

    def meddle(request: Message, reply: Message) -> Message:
        envelope = from_record(request.content)
        if envelope.head["kind"] == "evaluate" and envelope.head["client"] == 1 and (change := next(wrong, None)):
            sent = from_record(reply.content).arrays
            replace_arrays(reply, {k: a + change.get(k, 0.0) for k, a in sent.items()})
        return reply

    fleet.grid.meddle = meddle
    raw = settings(BNN, evaluate={"where": "clients"}, engine={"offences": 9}, selection={"kind": "round_robin"})
    out = fleet.run(raw, tmp_path / "run")
    found = lines(out)
    assert [line["evaluation"]["missing"] for line in found] == [[1], [1], [1], []]
    assert [event["name"] for event in events(out) if event["event"] == "rejected"] == ["client-1"] * 3


def test_messages_are_the_fewest_that_the_scheme_allows(fleet: Fleet, tmp_path: Path) -> None:
    """Round robin: one a round. KSD: one report of each candidate and one training. Beside them one hello a node."""
    fleet.run(settings(BLR, selection={"kind": "round_robin"}), tmp_path / "a")
    assert len(fleet.grid.sent) == 3 + 4
    fleet.grid.sent.clear()
    out = fleet.run(settings(BLR, selection={"kind": "ksd"}), tmp_path / "b")
    assert len(fleet.grid.sent) == 3 + 4 * (3 + 1)
    assert {event["event"] for event in events(out)} == {"joined"}  # nothing was asked twice


@pytest.mark.parametrize("small", [0, records.SMALL], ids=["records", "with the head"])
def test_nothing_on_the_wire_is_a_pickle(
    small: int, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays are bytes of a known type, in records of their own or with the head; the results are the same."""
    monkeypatch.setattr(records, "SMALL", small)
    out = fleet.run(settings(BNN), tmp_path / "run")
    assert lines(out) == lines(in_process(settings(BNN), tmp_path / "whole"))
    kinds, types = set(), set()
    for message in fleet.grid.sent:
        assert set(message.content) <= {records.HEAD, records.ARRAYS}
        types |= set(message.content[records.HEAD].get(records.TYPES, ()))
        kinds |= {array.stype for array in message.content.array_records.get(records.ARRAYS, {}).values()}
    assert (kinds, types) == (({"fedstein.raw"}, set()) if small == 0 else (set(), {"float32", "float64"}))
