"""The nodes of a federation on the page: their states, who is asked, and what happened to each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report.test_views import lines_of

from fedstein.report.follow import FollowedRun
from fedstein.report.views.build import views_of


def federation(folder: Path, events: list[tuple[str, int, int]], half: str = "") -> Path:
    """Give a run folder the names of three nodes, and events of them: what, round, client."""
    names = [{"id": i, "name": name, "rows": 5} for i, name in enumerate(("north", "east", "south"))]
    (folder / "clients.json").write_text(json.dumps(names))
    lines = [{"event": e, "round": r, "client": c, "name": names[c]["name"], "time": 1.0} for e, r, c in events]
    for line in lines:
        line |= {"until": line["round"] + 5} if line["event"] == "left out" else {}
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + half)
    return folder


EVENTS = [("joined", 0, 0), ("joined", 0, 1), ("missing", 2, 1), ("asked again", 2, 1), ("left out", 3, 1)]


def test_events_of_a_federation_are_counted_by_node(make_run) -> None:
    folder = make_run("a", {"partition.clients": 3}, stop=6)
    lines = lines_of(folder)
    for line in lines:
        line["reports"] = [0.5, None, 0.25]
    lines[3]["faults"] = {"missing": [1]}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    federation(folder, [*EVENTS, ("joined", 1, 2), ("left", 4, 2)], half='{"event": "half')
    asking = {"round": 7, "kind": "train", "clients": [0], "since": 12.5}
    (folder / "asking.json").write_text(json.dumps(asking))
    run = views_of([FollowedRun(folder)])["runs"][0]
    assert run["nodes"]["live"]  # the folder was written to a moment ago
    north, east, south = run["nodes"]["rows"]
    assert (east["late"], east["asked_again"], east["left_out"], east["state"], east["until"]) == (
        1,
        1,
        1,
        "left out",
        8,
    )
    assert (north["state"], north["now"], north["now_since"]) == ("connected", "training", 12.5)
    assert (south["state"], south["since"], south["left"], south["now"]) == ("away", 4, 1, None)
    trained = [client for line in lines for client in line["selected"]]
    assert [row["trained"] for row in (north, east, south)] == [trained.count(i) for i in range(3)]
    assert [row["reported"] for row in (north, east, south)] == [6, 0, 6]
    assert (north["asked"], east["asked"]) == (6, sum(1 in line["selected"] for line in lines) + 1)
    view = run["incidents"]
    assert [2, view["kinds"].index("missing"), "east"] in view["marks"]
    assert [4, view["kinds"].index("left"), "south"] in view["marks"]
    assert len(view["log"]) == 7


def test_nodes_of_a_run_that_nobody_runs_are_not_said_to_be_asked(make_run) -> None:
    folder = federation(make_run("a", {"partition.clients": 3, "rounds": 6}), EVENTS)
    (folder / "asking.json").write_text('{"round": 7, "kind": "train", "clients": [0], "since": 1.0}')
    found = views_of([FollowedRun(folder)])["runs"][0]
    assert not found["nodes"]["live"]  # finished; the file is left from a server that was killed
    assert [row["now"] for row in found["nodes"]["rows"]] == [None] * 3
    assert found["nodes"]["rows"][2]["state"] == "not seen yet"
    assert views_of([FollowedRun(make_run("b"))])["runs"][0]["nodes"] is None


@pytest.mark.parametrize("text", ["{", "[]", '{"clients": 3}', '{"kind": "train", "clients": [0]}'])
def test_a_damaged_note_of_who_is_asked_is_no_problem_of_the_run(make_run, text: str) -> None:
    folder = federation(make_run("a", {"partition.clients": 3}, stop=6), EVENTS)
    (folder / "asking.json").write_text(text)
    run = views_of([FollowedRun(folder)])["runs"][0]
    assert run["problems"] == []
    assert [row["now"] for row in run["nodes"]["rows"]] == [None] * 3
