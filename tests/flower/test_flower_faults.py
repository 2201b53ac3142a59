"""What goes wrong between server and nodes, over real serialised messages: asked again, or gone on without."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_runs import BLR, BNN, QUICK, Fleet, events, in_process, lines, settings
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from loopback import LoopGrid

from fedstein.errors import FedsteinError
from fedstein.flower.records import ARRAYS, HEAD, RAW, from_record
from fedstein.flower.server import membership as membership
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset

CURVATURE = {"kind": "curvature", "structure": "diagonal"}
PARTICLES = {"kind": "particles", "density": "log"}


def waiting(base: dict[str, Any] = BNN, **sections: Any) -> dict[str, Any]:
    return settings(base, **{"engine": QUICK, "selection": {"kind": "ksd"}, **sections})


def proceeding(base: dict[str, Any] = BNN, **sections: Any) -> dict[str, Any]:
    engine = {**QUICK, "on_missing": "proceed", **sections.pop("engine", {})}
    return waiting(base, engine=engine, **sections)


def kind_of(message: Message) -> tuple[str, int, int]:
    head = message.content.config_records[HEAD]
    return str(head["kind"]), int(head["round"]), int(head["client"])  # type: ignore[arg-type]


def named(out: Path, event: str) -> list[str]:
    return [entry["name"] for entry in events(out) if entry["event"] == event]


class Once:
    """True the first time that something is asked, of those that ``which`` names."""

    def __init__(self, which: Callable[[tuple[str, int, int]], bool]):
        self.which, self.seen = which, set[tuple[str, int, int]]()

    def __call__(self, message: Message) -> bool:
        what = kind_of(message)
        if what in self.seen or not self.which(what):
            return False
        self.seen.add(what)
        return True


@pytest.mark.parametrize("sites", [CURVATURE, PARTICLES], ids=["curvature", "particles"])
@pytest.mark.parametrize("lost", ["request", "reply"])
def test_what_is_lost_is_asked_again_and_changes_nothing(
    fleet: Fleet, tmp_path: Path, sites: dict[str, Any], lost: str
) -> None:
    """A lost reply is a client that was merely slow: it has trained, and hands out what it has pending."""
    raw, once = waiting(sites=sites), Once(lambda what: what[0] in ("ask", "train"))
    if lost == "request":
        fleet.grid.before = lambda request: not once(request)
    else:
        fleet.grid.meddle = lambda request, reply: None if once(request) else reply
    out = fleet.run(raw, tmp_path / "faulty")
    assert len(once.seen) == 4 * (3 + 1)
    assert lines(out) == lines(in_process(raw, tmp_path / "whole"))
    assert len(named(out, "asked again")) == 4 * (3 + 1)


def test_an_update_that_came_too_late_is_dropped_by_its_client(fleet: Fleet, tmp_path: Path) -> None:
    """Client 0 trains in round 1, too late; the round goes on without it, and its site stays what it was.

    In round 2 it is asked again, from other particles, and what it trained in round 1 must not show.
    """
    raw = proceeding(sites=PARTICLES, selection={"kind": "round_robin"}, rounds=5)
    pending: list[bytes] = []

    def meddle(request: Message, reply: Message) -> Message | None:
        if kind_of(request) != ("train", 1, 0):
            return reply
        pending.extend(path.read_bytes() for path in (fleet.folder / "node-0").glob("*/pending.safetensors"))
        return None

    fleet.grid.meddle = meddle
    out = fleet.run(raw, tmp_path / "run")
    first, *rest = lines(out)
    assert (first["selected"], first["failed"], first["faults"]) == ([1], [0], {"missing": [0]})
    assert len(pending) == 1, "it did train"
    assert named(out, "missing") == ["client-0"]
    assert all(line["faults"] is None for line in rest)
    # The same run in which client 0 never got the request of round 1.
    fresh = Fleet(LoopGrid({}), tmp_path / "others")
    fresh.grid.nodes.update({100 + client: fresh.node(client) for client in range(3)})
    fresh.grid.before = lambda request: kind_of(request) != ("train", 1, 0)
    assert lines(fresh.run(raw, tmp_path / "never")) == lines(out)


def test_a_node_that_restarts_under_a_new_id_goes_on_from_its_disk(fleet: Fleet, tmp_path: Path) -> None:
    raw = waiting(sites=PARTICLES)

    def restart(record: Any) -> None:
        old = max(fleet.grid.nodes)
        fleet.grid.nodes[old + 1000] = fleet.grid.nodes.pop(old)

    out = fleet.run(raw, tmp_path / "faulty", restart)
    assert lines(out) == lines(in_process(raw, tmp_path / "whole"))
    assert len(named(out, "left")) >= 3


def test_a_lost_curvature_site_is_given_back(fleet: Fleet, tmp_path: Path) -> None:
    raw = waiting(sites=CURVATURE, rounds=6)
    out = fleet.run(raw, tmp_path / "faulty", lambda record: shutil.rmtree(fleet.folder))
    assert lines(out) == lines(in_process(raw, tmp_path / "whole"))
    assert named(out, "site sent back")


def test_the_basis_is_sent_again_to_a_node_that_lost_it(fleet: Fleet, tmp_path: Path) -> None:
    raw = waiting(sites={"kind": "curvature", "structure": "eigen"})
    out = fleet.run(raw, tmp_path / "faulty", lambda record: shutil.rmtree(fleet.folder / "node-1", True))
    assert lines(out) == lines(in_process(raw, tmp_path / "whole"))


def test_a_lost_particle_site_cannot_be_given_back_and_the_others_go_on(fleet: Fleet, tmp_path: Path) -> None:
    raw = proceeding(sites=PARTICLES, selection={"kind": "round_robin"}, rounds=6)

    def lose(record: Any) -> None:
        if record["round"] == 1:
            shutil.rmtree(fleet.folder / "node-0")

    out = fleet.run(raw, tmp_path / "run", lose)
    missing = [line["round"] for line in lines(out) if line["faults"]]
    assert missing, "client 0 is asked again after its turn"
    assert all(line["selected"] and line["selected"] != [0] for line in lines(out)[1:])
    (reason,) = {entry["reason"] for entry in events(out) if entry["event"] == "missing"}
    assert "restore its state-dir" in reason


@pytest.mark.parametrize("damage", ["cut", "flip", "foreign", "not-ours"])
def test_a_state_file_that_is_damaged_or_foreign_is_refused(fleet: Fleet, tmp_path: Path, damage: str) -> None:
    raw = proceeding(sites=CURVATURE, selection={"kind": "round_robin"}, rounds=5)

    def spoil(record: Any) -> None:
        if record["round"] != 1:
            return
        (path,) = (fleet.folder / "node-0").glob("*/pending.safetensors")
        content = path.read_bytes()
        if damage == "cut":
            path.write_bytes(content[: len(content) // 2])
        elif damage == "flip":
            path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
        elif damage == "foreign":
            path.write_bytes(content.replace(b'"client":"0"', b'"client":"1"'))
        else:
            path.write_bytes(b"something else altogether")

    out = fleet.run(raw, tmp_path / "run", spoil)
    assert all(line["selected"] != [0] for line in lines(out)[1:])
    reasons = [entry["reason"] for entry in events(out) if entry["event"] == "missing"]
    assert reasons
    assert all("pending.safetensors is" in reason for reason in reasons)


def test_without_waiting_the_run_goes_on_and_names_who_was_missing(fleet: Fleet, tmp_path: Path) -> None:
    raw = proceeding(rounds=3)

    def leave(record: Any) -> None:
        fleet.grid.nodes.pop(101, None)

    found = lines(fleet.run(raw, tmp_path / "run", leave))
    assert found[0]["faults"] is None
    for line in found[1:]:
        assert line["faults"] == {"missing": [1]}
        assert line["reports"][1] is None
        assert line["selected"] in ([0], [2])
        assert line["accuracy"] > 0.05


def test_a_client_that_comes_late_joins(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "LOOK_EVERY", 0.0)  # rounds are quicker here than looks
    raw = proceeding(selection={"kind": "round_robin"}, rounds=6, engine={"start_timeout": 0.5})
    late = fleet.grid.nodes.pop(102)

    def join(record: Any) -> None:
        if record["round"] == 3:
            fleet.grid.nodes[500] = late

    out = fleet.run(raw, tmp_path / "run", join)
    assert 2 in {client for line in lines(out) for client in line["selected"]}
    assert [entry["rows"] for entry in json.loads((out / "clients.json").read_text())] == [40, 40, 40]
    assert lines(out)[2]["faults"] == {"missing": [2]}


def test_waiting_for_a_client_that_comes_late_gives_the_run_with_everybody(fleet: Fleet, tmp_path: Path) -> None:
    raw, late = waiting(), fleet.grid.nodes.pop(102)
    looks = 0

    def nodes() -> list[int]:
        nonlocal looks
        looks += 1
        if looks == 3:
            fleet.grid.nodes[500] = late
        return list(fleet.grid.nodes)

    fleet.grid.get_node_ids = nodes  # type: ignore[method-assign]
    assert lines(fleet.run(raw, tmp_path / "late")) == lines(in_process(raw, tmp_path / "whole"))


@pytest.mark.parametrize("sites", [CURVATURE, PARTICLES], ids=["curvature", "particles"])
@pytest.mark.parametrize("when", ["after the line", "before the line"])
def test_a_server_that_was_killed_goes_on_to_the_same_end(
    fleet: Fleet, tmp_path: Path, sites: dict[str, Any], when: str
) -> None:
    raw = waiting(sites=sites, rounds=5)

    class Killed(BaseException):
        pass

    def kill_after(record: Any) -> None:
        raise Killed

    def kill_in_training(request: Message) -> bool:
        if kind_of(request)[:2] == ("train", 3):
            raise Killed
        return True

    if when == "before the line":
        fleet.grid.before = kill_in_training
    out, done = tmp_path / "faulty", 0
    while not (out / "summary.json").exists():
        done += 1
        try:
            fleet.run(raw, out, kill_after if when == "after the line" and done < 4 else lambda record: None)
        except Killed:
            fleet.grid.before = lambda request: True
    assert done == (4 if when == "after the line" else 2)
    assert lines(out) == lines(in_process(raw, tmp_path / "whole"))


def reply_with(reply: Message, request: Message, head: dict[str, Any], arrays: dict[str, Array]) -> Message:
    record = RecordDict({HEAD: ConfigRecord(head), ARRAYS: ArrayRecord(arrays)})
    return Message(record, reply_to=request)


def tampered(how: str) -> Callable[[Message, Message], Message]:
    def meddle(request: Message, reply: Message) -> Message:
        envelope = from_record(reply.content)
        head = dict(envelope.head)
        arrays = {name: Array(a.dtype.name, a.shape, RAW, a.tobytes()) for name, a in envelope.arrays.items()}
        name = min(arrays)
        values = np.frombuffer(arrays[name].data, arrays[name].dtype).reshape(arrays[name].shape).copy()
        if how == "nan":
            values[...] = np.nan
        elif how == "infinite":
            values[...] = np.inf
        elif how == "dtype":
            values = values.astype(np.float64)
        elif how == "shape":
            values = np.append(values.ravel(), values.ravel())
        arrays[name] = Array(dtype=values.dtype.name, shape=values.shape, stype=RAW, data=values.tobytes())
        if how == "bytes":
            arrays[name] = Array(dtype="float32", shape=(3, 4), stype=RAW, data=b"12345")
        elif how == "pickle":
            arrays[name] = Array(dtype="float32", shape=(1,), stype="pickle", data=b"cos\nsystem\n.")
        elif how == "round":
            head["round"] = 77
        elif how == "run":
            head["run"] = "another"
        elif how == "status":
            head["status"] = "fine"
        elif how == "receipt":
            head["receipt"] = "x"
        elif how == "empty":
            return Message(RecordDict({}), reply_to=request)
        return reply_with(reply, request, head, arrays)

    return meddle


WRONG = ["nan", "infinite", "dtype", "shape", "bytes", "pickle", "round", "run", "status", "empty"]


@pytest.mark.parametrize("how", [*WRONG, "receipt"])
def test_wrong_updates_are_rejected_by_name_and_the_round_goes_on(fleet: Fleet, tmp_path: Path, how: str) -> None:
    """Client 0 lies whenever it trains. After two lies it is left out for two rounds, then it is asked again."""
    raw = waiting(BLR, selection={"kind": "round_robin"}, rounds=6, engine={**QUICK, "offences": 2, "leave_out": 2})
    lie = tampered(how)

    def meddle(request: Message, reply: Message) -> Message:
        return lie(request, reply) if kind_of(request)[0] == "train" and kind_of(request)[2] == 0 else reply

    fleet.grid.meddle = meddle
    out = fleet.run(raw, tmp_path / "run")
    found = [(line["selected"], line["failed"], line["faults"]) for line in lines(out)]
    rejected, gone = {"rejected": [0]}, {"left_out": [0]}
    assert [entry[2] for entry in found] == [rejected, rejected, gone, gone, rejected, rejected]
    assert all(entry[0] in ([1], [2]) for entry in found)
    assert set(named(out, "rejected")) == {"client-0"}


@pytest.mark.parametrize("how", WRONG)
def test_wrong_reports_are_rejected_by_name_and_do_not_count(fleet: Fleet, tmp_path: Path, how: str) -> None:
    raw, lie = waiting(BLR, rounds=2, selection={"kind": "hip"}), tampered(how)

    def meddle(request: Message, reply: Message) -> Message:
        return lie(request, reply) if kind_of(request)[0] == "ask" and kind_of(request)[2] == 2 else reply

    fleet.grid.meddle = meddle
    for line in lines(fleet.run(raw, tmp_path / "run")):
        assert line["reports"][2] is None
        assert line["probabilities"][2] == 0
        assert line["faults"] == {"rejected": [2]}
        assert line["selected"] != [2]


def test_a_huge_report_does_not_win_for_ever(fleet: Fleet, tmp_path: Path) -> None:
    raw = waiting(BLR, rounds=20, selection={"kind": "ksd", "max_ratio": 2.0, "max_probability": 0.5})

    def meddle(request: Message, reply: Message) -> Message:
        if kind_of(request)[0] == "ask" and kind_of(request)[2] == 1:
            array = Array(dtype="float32", shape=(), stype=RAW, data=np.float32(1e30).tobytes())
            return reply_with(reply, request, dict(from_record(reply.content).head), {"ksd": array})
        return reply

    fleet.grid.meddle = meddle
    found = lines(fleet.run(raw, tmp_path / "run"))
    assert all(line["faults"] == {"capped": [1]} for line in found)
    assert all(line["reports"][1] == pytest.approx(1e30) for line in found), "the line says what was reported"
    assert all(max(line["probabilities"]) <= 0.5 + 1e-9 for line in found)
    assert 3 <= sum(line["selected"] == [1] for line in found) <= 17


def test_nobody_answers(fleet: Fleet, tmp_path: Path) -> None:
    """The run stops after its patience with a sentence, and goes on where it was when the nodes are back."""
    raw = waiting(BLR, engine={**QUICK, "patience": 0.6}, rounds=3)
    away: dict[int, Any] = {}

    def leave(record: Any) -> None:
        if record["round"] == 2:
            away.update(fleet.grid.nodes)
            fleet.grid.nodes.clear()

    with pytest.raises(FedsteinError, match=r"round 3: nobody answered .* for 1 s .*client-0 .*resume"):
        fleet.run(raw, tmp_path / "run", leave)
    fleet.grid.nodes.update(away)
    assert lines(fleet.run(raw, tmp_path / "run")) == lines(in_process(raw, tmp_path / "whole"))


def test_the_start_waits_for_everybody_or_says_who_is_there(fleet: Fleet, tmp_path: Path) -> None:
    fleet.grid.nodes.pop(100)
    raw = waiting(engine={**QUICK, "start_timeout": 0.3})
    with pytest.raises(FedsteinError, match="2 of 3 clients have connected after 0 s"):
        fleet.run(raw, tmp_path / "run")
    fleet.grid.nodes.clear()
    with pytest.raises(FedsteinError, match="no client has connected"):
        fleet.run({**raw, "engine": {**raw["engine"], "on_missing": "proceed"}}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_node_that_cannot_take_part_is_turned_away_by_name(fleet: Fleet, tmp_path: Path) -> None:
    fleet.grid.nodes[300] = {"partition-id": 7, "state-dir": str(tmp_path / "x"), "name": "stranger"}
    fleet.grid.nodes[301] = {"partition-id": 1, "state-dir": str(tmp_path / "y"), "name": "impostor"}
    out = fleet.run(waiting(rounds=1), tmp_path / "run")
    reasons = {entry["name"]: entry["reason"] for entry in events(out) if entry["event"] == "turned away"}
    assert "the run has clients 0 to 2" in reasons["stranger"]
    assert "client 1 is" in reasons["impostor"]


def test_pooled_svgd_has_no_nodes(fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(FedsteinError, match="everybody's rows in one place"):
        fleet.run(settings(BLR, algorithm={"kind": "pooled_svgd"}), tmp_path / "run")


def test_waiting_settings_are_for_flower_alone() -> None:
    """Beside ``kind = "local"`` they are refused; those of a base that a later layer takes off Flower are dropped."""
    raw = settings(BLR, engine={"kind": "local", "patience": 3.0})
    facts = facts_of(load_dataset(raw))
    with pytest.raises(FedsteinError, match=r"engine\.patience is not used: engine\.kind is 'local'"):
        resolve(raw, facts)
    base = settings(BLR, engine={"kind": "flower", "patience": 3.0})
    config, notes = resolve([("base", base), ("command", {"engine": {"kind": "local"}})], facts)
    assert not hasattr(config.engine, "patience")
    assert notes == ["engine.patience is not used: engine.kind is 'local'"]
