"""The log of a run over nodes, and the note of who is asked now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedstein.flower.server import events as module
from fedstein.flower.server.events import ASKING, Events


@pytest.fixture
def events(tmp_path: Path, monkeypatch) -> Events:
    now = iter(range(1000, 2000))
    monkeypatch.setattr(module.time, "time", lambda: float(next(now)))  # a second passes at every look
    log = Events(say=lambda line: None)
    log.open(tmp_path / "events.jsonl")
    return log


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_what_happens_between_rounds_belongs_to_the_round_under_way(events: Events, tmp_path: Path) -> None:
    events.note("joined", client=0, name="a")
    events.asking("ask", 7, [0, 1])
    events.note("left", client=1, name="b")  # the membership does not know of rounds
    events.note("missing", number=6, client=1, name="b")
    assert [(line["event"], line["round"]) for line in lines(tmp_path)] == [("joined", 0), ("left", 7), ("missing", 6)]


def test_the_note_says_who_has_not_answered_since_when(events: Events, tmp_path: Path) -> None:
    file = tmp_path / ASKING
    events.asking("ask", 3, {0: "", 2: ""}, begin=True)
    first = json.loads(file.read_text())
    assert (first["round"], first["kind"], first["clients"]) == (3, "ask", [0, 2])
    events.asking("ask", 3, {2: ""})
    second = json.loads(file.read_text())
    assert (second["clients"], second["since"]) == ([2], first["since"])
    events.asking("train", 3, [2], begin=True)
    assert json.loads(file.read_text())["since"] > first["since"]
    events.asking("train", 3, ())
    assert list(tmp_path.iterdir()) == []


def test_a_note_that_cannot_be_written_does_not_stop_a_run(tmp_path: Path) -> None:
    log = Events(say=lambda line: None)
    log.asking("ask", 1, [0], begin=True)  # there is no run folder yet
    log.open(tmp_path / "events.jsonl")
    (tmp_path / ASKING).mkdir()
    log.asking("ask", 1, [0], begin=True)
    log.asking("ask", 1, ())


def test_answers_that_come_at_once_do_not_write_the_note_each_time(events: Events, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module.time, "time", lambda: 5.0)
    events.asking("ask", 3, [0, 1, 2], begin=True)
    events.asking("ask", 3, [1, 2])
    assert json.loads((tmp_path / ASKING).read_text())["clients"] == [0, 1, 2]
    monkeypatch.setattr(module.time, "time", lambda: 6.0)
    events.asking("ask", 3, [1, 2])  # asked again at the next look, when it is due
    assert json.loads((tmp_path / ASKING).read_text())["clients"] == [1, 2]
