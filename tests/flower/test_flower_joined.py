"""Reports of the next round in the same exchange as an evaluation by clients: fewer messages, the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flower_runs import BLR, BNN, QUICK, Fleet, events, in_process, lines, settings
from flwr.app import Message

from fedstein.errors import InputError
from fedstein.flower.records import from_record
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts

BYTES = ("bytes_down", "bytes_up")


def joined(base: dict[str, Any], every: int = 1, join: bool = True, **sections: Any) -> dict[str, Any]:
    return settings(base, evaluate={"where": "clients", "every": every, "join": join}, **sections)


def without_bytes(folder: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in BYTES} for line in lines(folder)]


def brings_sums(request: Message) -> bool:
    return bool(from_record(request.content).head.get("evaluate"))


def test_reports_come_with_the_evaluation_and_particles_go_once(fleet: Fleet, tmp_path: Path) -> None:
    pool = {"selection": {"kind": "hip", "pool": 2}}
    here = in_process(joined(BNN, **pool), tmp_path / "here")
    there = fleet.run(joined(BNN, **pool), tmp_path / "there")
    assert lines(here) == lines(there)
    # Two reports in round 1; then three evaluations and one training a round.
    kinds = [from_record(message.content).head["kind"] for message in fleet.grid.sent]
    assert [kinds.count(kind) for kind in ("ask", "train", "evaluate")] == [2 + 3 * 2, 4, 3 * 1 + 3 + 3], kinds
    assert sum(map(brings_sums, fleet.grid.sent)) == 3 * 2
    apart = in_process(joined(BNN, join=False, **pool), tmp_path / "apart")
    assert without_bytes(here) == without_bytes(apart)
    particles = 4 * 4 * (6 * 64 + 6 + 10 * 6 + 10)
    less = [one["bytes_down"] - other["bytes_down"] for one, other in zip(lines(apart), lines(here), strict=True)]
    assert less == [0, *[2 * particles] * 3]
    assert {event["event"] for event in events(there)} == {"joined", "set up", "sums"}  # nothing was asked twice


def test_encoded_broadcasts_and_evaluations_every_other_round(fleet: Fleet, tmp_path: Path) -> None:
    """Particles of four bits are not those that are evaluated, so both travel."""
    raw = joined(BNN, every=2, selection={"pool": 0}, channel={"codec": "int4", "packing": "deflate"})
    here, there = in_process(raw, tmp_path / "here"), fleet.run(raw, tmp_path / "there")
    assert lines(here) == lines(there)
    assert sum(map(brings_sums, fleet.grid.sent)) == 3  # after round 2; after round 4 there is nothing to report for
    raw["evaluate"]["join"] = False
    assert lines(here) == lines(in_process(raw, tmp_path / "apart"))


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_joined_message_that_is_lost_is_asked_again(fleet: Fleet, tmp_path: Path, lost: str) -> None:
    raw, seen = joined(BLR, engine=QUICK, selection={"kind": "ksd"}), set[tuple[int, int]]()

    def first_time(request: Message) -> bool:
        head = from_record(request.content).head
        new = bool(head.get("evaluate")) and (head["round"], head["client"]) not in seen
        seen.add((head["round"], head["client"]))
        return new

    if lost == "request":
        fleet.grid.before = lambda request: not first_time(request)
    else:
        fleet.grid.meddle = lambda request, reply: None if first_time(request) else reply
    assert lines(fleet.run(raw, tmp_path / "faulty")) == lines(in_process(raw, tmp_path / "whole"))


def test_a_server_that_is_killed_before_its_checkpoint_finds_the_sites_of_before(fleet: Fleet, tmp_path: Path) -> None:
    """Nodes report from the site of the last round, which no checkpoint has yet; the one before must stay theirs."""
    raw = joined(BLR, engine=QUICK, selection={"kind": "ksd"}, sites={"kind": "particles", "density": "log"})

    class Killed(BaseException):
        pass

    def kill(request: Message, reply: Message) -> Message:
        head = from_record(request.content).head
        if head.get("evaluate") and (head["round"], head["client"]) == (4, 2):  # the last of those asked after round 3
            raise Killed
        return reply

    fleet.grid.meddle = kill
    out = tmp_path / "faulty"
    with pytest.raises(Killed):
        fleet.run(raw, out)
    fleet.grid.meddle = lambda request, reply: reply
    assert lines(fleet.run(raw, out)) == lines(in_process(raw, tmp_path / "whole"))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"evaluate": {"join": True}}, "only an evaluation by clients"),
        ({"evaluate": {"join": True, "where": "clients"}, "selection": {"kind": "random"}}, "asks for no reports"),
        ({"evaluate": {"join": True, "where": "clients"}, "privacy": {"sums": "secure"}}, "a secure sum"),
    ],
)
def test_what_cannot_be_joined_is_refused(sections: dict[str, Any], message: str) -> None:
    raw = settings(BLR, **{"engine": {"kind": "flower"}, "selection": {"kind": "ksd"}, **sections})
    with pytest.raises(InputError, match=message):
        resolve(raw, Facts("classification", 2))
