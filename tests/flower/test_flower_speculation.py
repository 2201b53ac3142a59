"""Candidates that train along with their reports: the same results, fewer messages, and all work in the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flower_runs import BLR, BNN, QUICK, Fleet, in_process, lines, settings
from flwr.app import Message

from fedstein.errors import InputError
from fedstein.flower.records import from_record
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts

COSTS = ("bytes_down", "bytes_up", "row_gradients", "speculated")


def speculative(count: int, base: dict[str, Any] = BLR, **sections: Any) -> dict[str, Any]:
    return settings(base, **{"selection": {"kind": "ksd", "speculate": count}, **sections})


def without_costs(folder: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in COSTS} for line in lines(folder)]


def test_results_are_the_same_and_work_for_nothing_is_counted(fleet: Fleet, tmp_path: Path) -> None:
    here, there = in_process(speculative(1), tmp_path / "here"), fleet.run(speculative(1), tmp_path / "there")
    assert lines(here) == lines(there)
    without = in_process(speculative(0), tmp_path / "without")
    assert without_costs(here) == without_costs(without)
    rounds = list(zip(lines(here), lines(without), strict=True))
    missed = [line["speculated"] != line["selected"] for line, _ in rounds]
    assert any(missed)
    assert not all(missed)
    kinds = [from_record(message.content).head["kind"] for message in fleet.grid.sent]
    assert kinds.count("train") == sum(missed)
    assert kinds.count("ask") == 4 * 3
    alone = {line["selected"][0]: line["row_gradients"]["train"] for line in lines(without)}
    for (line, other), miss in zip(rounds, missed, strict=True):
        in_vain = sum(alone[client] for client in line["speculated"] if miss)
        assert line["row_gradients"]["train"] == other["row_gradients"]["train"] + in_vain
        assert (line["bytes_up"] > other["bytes_up"]) == (line["bytes_down"] > other["bytes_down"]) == miss


@pytest.mark.slow
@pytest.mark.parametrize(
    "sections",
    [
        {"selection": {"kind": "ksd", "speculate": 3, "per_round": 2}},
        {"selection": {"kind": "ksd", "speculate": 2, "per_round": 2}, "algorithm": {"kind": "parallel_dsvgd"}},
        {"selection": {"kind": "hip", "speculate": 2}, "sites": {"renew": False}, "channel": {"codec": "int4"}},
    ],
    ids=["two-a-round", "parallel", "few-bits"],
)
def test_other_rounds(fleet: Fleet, tmp_path: Path, sections: dict[str, Any]) -> None:
    raw = settings(BNN, **sections)
    here = in_process(raw, tmp_path / "here")
    assert lines(here) == lines(fleet.run(raw, tmp_path / "there"))
    raw["selection"]["speculate"] = 0
    assert without_costs(here) == without_costs(in_process(raw, tmp_path / "without"))


def test_a_server_that_is_killed_guesses_as_before(fleet: Fleet, tmp_path: Path) -> None:
    """One reply of each round is lost too; the indicators of earlier rounds are in the checkpoint."""
    raw, seen = speculative(2, engine=QUICK), set[int]()

    class Killed(BaseException):
        pass

    def kill(record: Any) -> None:
        if record["round"] == 2:
            raise Killed

    def lose(request: Message, reply: Message) -> Message | None:
        head = from_record(request.content).head
        new = "train" in head and head["round"] not in seen
        seen.add(head["round"])
        return None if new else reply

    fleet.grid.meddle = lose
    out = tmp_path / "faulty"
    with pytest.raises(Killed):
        fleet.run(raw, out, kill)
    assert lines(fleet.run(raw, out)) == lines(in_process(raw, tmp_path / "whole"))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"selection": {"kind": "hip", "speculate": 1}, "sites": {"renew": True}}, "sites.renew = true"),
        ({"evaluate": {"where": "clients", "join": True}}, "evaluate.join = true"),
    ],
)
def test_what_speculation_would_change_is_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(speculative(1, **sections), Facts("classification", 2))
