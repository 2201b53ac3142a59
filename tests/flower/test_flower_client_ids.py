"""One node plays several clients: the same bits as one node for each, and as in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flower_runs import BLR, BNN, Fleet, events, in_process, lines, settings
from loopback import LoopGrid

from fedstein.errors import InputError
from fedstein.federation.engine import FlowerEngineSettings
from fedstein.flower.messages import Envelope
from fedstein.flower.node.client_ids import parse_client_ids, ranges
from fedstein.flower.node.rows import read_node
from fedstein.flower.server.membership import introductions, lifetime


def two_nodes(folder: Path) -> Fleet:
    """Three clients over two nodes that share a folder."""
    shared = {"state-dir": str(folder / "state")}
    return Fleet(LoopGrid({7: {**shared, "partition-ids": "0,2"}, 8: {**shared, "partition-ids": "1"}}), folder)


@pytest.mark.parametrize(
    ("base", "more"),
    [(BLR, {"selection": {"kind": "ksd"}}), (BNN, {})],
    ids=["ksd", "hip-with-renewal"],
)
def test_clients_over_two_nodes_are_the_clients_of_one_process(
    tmp_path: Path, base: dict[str, Any], more: dict[str, Any]
) -> None:
    raw = settings(base, rounds=3, **more)
    out = two_nodes(tmp_path).run(raw, tmp_path / "run")
    whole = in_process(raw, tmp_path / "whole")
    assert lines(out) == lines(whole)
    for name in ("posterior.safetensors", "clients.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert sorted(e["name"] for e in events(out) if e["event"] == "joined") == ["client-0", "client-1", "client-2"]
    kept = {path.parent.parent.name for path in (tmp_path / "state").glob("*/*/committed.safetensors")}
    assert kept <= {"client-0", "client-1", "client-2"}
    assert kept, "every client has a state of its own"


def test_a_node_refuses_clients_that_it_does_not_play(tmp_path: Path) -> None:
    node = read_node({"partition-ids": "0-3,8", "state-dir": str(tmp_path)})
    assert node.as_client(8).partition == 8
    assert node.as_client(8).state_dir == tmp_path / "client-8"
    with pytest.raises(InputError, match="plays 5 clients, and client 5 is not one of them"):
        node.as_client(5)


def test_ranges_of_clients() -> None:
    assert parse_client_ids("0-3,8, 5") == (0, 1, 2, 3, 5, 8)
    assert ranges(1000, 4) == ["0-249", "250-499", "500-749", "750-999"]
    assert ranges(2, 3) == ["0-0", "1-1"]
    assert [client for part in ranges(10, 3) for client in parse_client_ids(part)] == list(range(10))
    for wrong in ("", "a", "3-1", "0-5,2", "-1", "0-999999999", "1..4"):
        with pytest.raises(InputError, match="partition-ids"):
            parse_client_ids(wrong)
    with pytest.raises(InputError, match="partition-ids"):
        read_node({"partition-ids": "0-3", "partition-id": 1, "state-dir": "x"})


def test_a_greeting_lives_as_long_as_a_node_may_take_to_start() -> None:
    assert lifetime(FlowerEngineSettings(report_timeout=5.0, start_timeout=90.0)) == 90.0
    assert lifetime(FlowerEngineSettings(report_timeout=500.0, start_timeout=90.0)) == 500.0


@pytest.mark.parametrize("text", ["{", "[1]", "[{}]", "3", "null", "[]"])
def test_an_introduction_that_cannot_be_read_is_one_reply(text: str) -> None:
    reply = Envelope({"status": "ok", "several": text}, {})
    assert introductions(reply) == [reply]
