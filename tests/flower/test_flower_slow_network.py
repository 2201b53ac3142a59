"""Slow networks: timeouts follow the pace that was measured, the log says what is waited for, and rounds end."""

from __future__ import annotations

from pathlib import Path

import pytest
from flower_runs import BLR, CLIENTS, QUICK, Fleet, events, in_process, lines, settings
from flwr.app import Message
from proxies import SlowLine
from real import LONG, Scene

from fedstein.flower.launch.processes import Fleet as Processes
from fedstein.flower.server import requests
from fedstein.flower.server.pace import LAST, LONGEST, SMALLEST, Pace, waiting_text
from fedstein.flower.server.pending import Pending


def test_a_timeout_follows_the_pace_of_the_slowest_of_the_last_exchanges() -> None:
    pace = Pace()
    assert pace.timeout(0, 10**7, 60.0) == 60.0, "nothing is known yet"
    pace.note([0], 10**6, 8.0)  # 1 Mbit a second
    pace.note([1], 10**6, 0.01)
    assert pace.timeout(0, 10**7, 60.0) == pytest.approx(3 * 80.0)
    assert pace.timeout(0, 10**6, 60.0) == 60.0, "a small message has time enough"
    assert pace.timeout(1, 10**7, 60.0) == 60.0
    pace.note([0], SMALLEST - 1, 1e6)
    assert pace.timeout(0, 10**7, 60.0) == pytest.approx(240.0), "a small exchange says nothing of bytes"
    pace.note([0], 10**6, 1e9)
    assert pace.timeout(0, 10**7, 60.0) == LONGEST * 60.0
    for _ in range(LAST):
        pace.note([0], 10**6, 0.01)
    assert pace.timeout(0, 10**7, 60.0) == 60.0, "the line is fast again"


def test_the_log_says_who_is_waited_for() -> None:
    asked, absent = Pending(0), Pending(1)
    asked.sent, asked.size, asked.tickets = 100.0, 1_590_000, {"ticket": None}  # type: ignore[dict-item]
    absent.reason = "not connected"
    text = waiting_text([asked, absent], "abc".__getitem__, 131.0)
    assert text == "a (asked 31 s ago, 1.59 MB), b (not connected)"
    assert waiting_text([absent] * 7, "abc".__getitem__, 0.0).endswith(" and 2 more")


def test_a_request_that_stays_open_is_in_the_log(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SAY_AFTER", 0.05)
    lost: list[Message] = []

    def before(message: Message) -> bool:
        if message.metadata.dst_node_id == 101 and "train" in str(message.metadata.message_type) and not lost:
            lost.append(message)
            return False
        return True

    fleet.grid.before = before
    raw = settings(BLR, selection={"kind": "round_robin"}, rounds=CLIENTS, engine=QUICK)
    found = lines(fleet.run(raw, tmp_path / "run"))
    assert found == lines(in_process(raw, tmp_path / "whole"))
    said = [entry for entry in events(tmp_path / "run") if entry["event"] == "waiting"]
    assert lost
    assert said
    assert said[0]["reason"].startswith("client-1 (asked 0 s ago, 0.0")
    assert (said[0]["kind"], said[0]["round"]) == ("train", 2)


@pytest.mark.slow
def test_a_line_with_delay_few_bytes_and_breaks(tmp_path: Path) -> None:
    """200 ms, 1 Mbit/s and 1% of broken connections for server and nodes: the run is the one on a fast line."""
    raw = settings(BLR, partition={"clients": 2}, selection={"kind": "ksd"}, rounds=3)
    made: list[SlowLine] = []

    def through(port: int) -> str:
        made.append(SlowLine(port, delay=0.2, bytes_a_second=125_000, broken=0.01, seed=len(made)))
        return made[-1].address

    with Processes(tmp_path / "fleet", patience=LONG) as fleet:
        fleet.start_link(through)
        for client in range(2):
            node = {"partition-id": client, "state-dir": str(tmp_path / "state" / str(client))}
            fleet.start_node(f"client-{client}", node, wait=False, through=through(fleet.port))
        scene = Scene.__new__(Scene)
        scene.fleet, scene.folder, scene.out, scene.run = fleet, tmp_path, tmp_path / "run", 0
        try:
            scene.submit(raw, report_timeout=20.0, train_timeout=20.0)
            found = scene.finish()
        finally:
            for line in made:
                line.close()
    assert found == lines(in_process(raw, tmp_path / "whole"))
    assert all(line.carried for line in made)
