"""Secure sums over nodes: the same results as with plain sums, under drop-outs too, and no node's own sums are sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_runs import BLR, BNN, CLIENTS, QUICK, Fleet, events, in_process, lines, settings
from flwr.app import Message
from loopback import LoopGrid
from own_files import COLUMNS, node_of, own, patients, raw, write
from test_flower_policy import asked, config_of, own_config

from fedstein.data import first_sums
from fedstein.data.holdout import split_client
from fedstein.data.scaling import add, sum_shapes
from fedstein.errors import InputError
from fedstein.federation.engine import FlowerEngineSettings
from fedstein.federation.secure_sum.collector import TooFew
from fedstein.federation.secure_sum.fixed_point import FRACTION, decode, encode
from fedstein.federation.secure_sum.wire import PHASES
from fedstein.flower.messages import FORMAT, REFUSED, Envelope
from fedstein.flower.node.handlers import handle
from fedstein.flower.node.policy import make_policy
from fedstein.flower.node.rows import read_node
from fedstein.flower.node.secure import STATE
from fedstein.flower.records import from_record
from fedstein.flower.server.events import Events
from fedstein.flower.server.membership import Membership
from fedstein.flower.server.requests import Requests
from fedstein.flower.server.secure_sums import secure_total
from fedstein.flower.server.transport import GridTransport

SECURE = {"privacy": {"sums": "secure"}}
CLOSED = {"data": {"categories": {}}}


class Nodes:
    """Nodes with small files on a loopback grid, and the server's requests to them."""

    def __init__(self, folder: Path, count: int, on_missing: str = "proceed"):
        self.grid, self.config = LoopGrid({}), own_config(**SECURE, **CLOSED, partition={"clients": count})
        self.rows = {}
        for client in range(count):
            name = f"clinic-{client}"
            x, y = patients(client, 20 + client)
            path = write(folder / f"{name}.csv", x, y)
            self.grid.nodes[client] = node_of(name, path, folder, COLUMNS)
            self.rows[client] = x
        settings = FlowerEngineSettings.model_validate(
            {**QUICK, "kind": "flower", "on_missing": on_missing, "report_timeout": 0.2}
        )
        self.log = Events(lambda line: None)
        transport = GridTransport(self.grid, self.log)
        text = self.config.to_toml()
        membership = Membership(transport, "r1", text, count, self.log, 5.0)
        membership.gather(5.0, True)
        self.requests = Requests(transport, membership, settings, "r1", text, self.log)

    def total(self) -> tuple[dict[str, np.ndarray], list[int]]:
        form = sum_shapes(len(COLUMNS), "classification")[0]
        return secure_total(self.requests, "scale", 0, range(len(self.rows)), {}, form)

    def lose(self, losses: dict[int, str]) -> None:
        """These clients are not reached from a phase on."""

        def reached(request: Message) -> bool:
            head = from_record(request.content).head
            before = losses.get(int(head["client"]))
            return before is None or "phase" not in head or PHASES.index(head["phase"]) < PHASES.index(before)

        self.grid.before = reached

    def plain(self, clients: list[int]) -> dict[str, np.ndarray]:
        return add([first_sums(split_client(*patients(client, 20 + client), 0.2).x, None) for client in clients])


@pytest.mark.parametrize("phase", ["", *PHASES])
def test_a_node_that_is_lost_in_any_phase_leaves_the_sum_of_the_others(tmp_path: Path, phase: str) -> None:
    nodes = Nodes(tmp_path, 4)
    nodes.lose({2: phase} if phase else {})
    total, inside = nodes.total()
    gone = phase in ("keys", "shares", "masked")
    assert inside == ([0, 1, 3] if gone else [0, 1, 2, 3])
    plain = nodes.plain(inside)
    assert set(total) == set(plain)
    for name, array in total.items():
        last = 4 * 2.0**-FRACTION + np.abs(plain[name]) * 2.0**-51
        assert (np.abs(array - plain[name]) <= last).all(), name
    assert total["count"] == plain["count"]
    (said,) = [json.loads(line) for line in nodes.log.early if '"secure sum"' in line]
    assert (said["clients"], said["threshold"], said["kind"]) == (inside, 3, "scale")


@pytest.mark.parametrize("phase", PHASES)
def test_below_the_threshold_nothing_is_revealed(tmp_path: Path, phase: str) -> None:
    nodes = Nodes(tmp_path, 4)
    nodes.lose({2: phase, 3: phase})
    with pytest.raises(TooFew, match="nothing was revealed"):
        nodes.total()
    asked = [from_record(message.content).head.get("phase") for message in nodes.grid.sent]
    if phase != "unmasked":
        assert "unmasked" not in asked


def test_what_a_node_sends_is_not_its_sums(tmp_path: Path) -> None:
    """Every array that leaves a node in a session, against the numbers of its own sums."""
    nodes, seen = Nodes(tmp_path, 3), []

    def meddle(request: Message, reply: Message) -> Message:
        if reply.has_content() and (found := from_record(reply.content)).head["kind"] == "secure":
            seen.append(found)
        return reply

    nodes.grid.meddle = meddle
    nodes.total()
    assert [each.head["status"] for each in seen] == ["ok"] * 12
    assert {tuple(sorted(each.arrays)) for each in seen} == {("keys",), ("shares",), ("masked",), ("keys", "seeds")}
    own_sums = {float(v) for client in range(3) for array in nodes.plain([client]).values() for v in np.ravel(array)}
    hidden = {tuple(words.tolist()) for words in encode(sorted(own_sums), 3)}
    masked = [each.arrays["masked"] for each in seen if "masked" in each.arrays]
    assert len(masked) == 3
    for words in masked:
        assert not hidden & {tuple(each.tolist()) for each in words}
        assert np.abs(decode(words)).min() > 1e3, "far from any sum"


def test_a_lie_about_survivors_after_the_sum_is_refused(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 4)
    nodes.total()
    last = [from_record(message.content) for message in nodes.grid.sent][-1]
    assert last.head["phase"] == "unmasked"
    node = read_node(nodes.grid.nodes[3])
    again = handle(last, node)
    assert again.head["status"] == "ok"
    lie = handle(last._replace(arrays={"survivors": np.array([0, 1, 3])}), node)
    assert lie.head["status"] == REFUSED
    assert "names other survivors than before" in lie.head["reason"]
    other = handle(last._replace(head={**last.head, "session": "another"}), node)
    assert "is in another secure sum by now" in other.head["reason"]
    (Path(nodes.grid.nodes[3]["state-dir"]) / "r1" / STATE).unlink()
    assert "has lost its state" in handle(last, node).head["reason"]


@pytest.mark.parametrize("kind", ["scale", "evaluate", "columns"])
def test_plain_sums_do_not_exist_in_a_run_with_secure_ones(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", *patients(0))
    node = read_node(node_of("a", path, tmp_path, COLUMNS))
    reply = asked(kind, own_config(**SECURE, **CLOSED), node)
    assert reply["status"] == REFUSED
    assert "is not sent as it is" in reply["reason"]
    assert "asks for no secure sum" in asked_secure(own_config(), node, "scale")["reason"]
    assert "asks for no secure sum" in asked_secure(own_config(**SECURE, **CLOSED), node, "train")["reason"]


def asked_secure(config: Any, node: Any, of: str) -> dict[str, Any]:
    head = {"format": FORMAT, "kind": "secure", "run": "r1", "round": 0, "client": 0, "config": config.to_toml()}
    return handle(Envelope({**head, "setup": "", "phase": "keys", "session": "s", "of": of}, {}), node).head


@pytest.mark.parametrize("on_missing", ["wait", "proceed"])
def test_numbers_that_do_not_fit_are_refused_by_the_node(tmp_path: Path, on_missing: str) -> None:
    """A refusal is for good; the server does not wait for another answer."""
    nodes = Nodes(tmp_path, 4, on_missing)
    x, y = patients(1, 21)
    x[:, 1] *= 1e18
    write(tmp_path / "clinic-1.csv", x, y)
    _, inside = nodes.total()
    assert inside == [0, 2, 3]
    said = [json.loads(line) for line in nodes.log.early if '"failed"' in line]
    assert said[0]["name"] == "clinic-1"
    assert "takes numbers below" in said[0]["reason"]


@pytest.mark.slow
def test_a_run_over_files_is_the_one_with_plain_sums(fleet: Fleet, tmp_path: Path) -> None:
    own(fleet, tmp_path)
    given = raw(rounds=2)
    fleet.run(given, tmp_path / "plain")
    fleet.grid.sent.clear()
    fleet.run({**given, **SECURE}, tmp_path / "secure")
    kinds = {from_record(message.content).head["kind"] for message in fleet.grid.sent}
    assert kinds == {"hello", "secure", "ask", "train"}
    one, other = (json.loads((tmp_path / name / "data.json").read_text()) for name in ("plain", "secure"))
    assert other["mean"] == pytest.approx(one["mean"], rel=1e-13)
    assert other["scale"] == pytest.approx(one["scale"], rel=1e-13)
    for mine, theirs in zip(lines(tmp_path / "secure"), lines(tmp_path / "plain"), strict=True):
        assert mine["selected"] == theirs["selected"]
        assert mine["nll"] == pytest.approx(theirs["nll"], rel=1e-5)
        assert (mine["evaluation"]["rows"], mine["evaluation"]["missing"]) == (36, [])
    each = json.loads((tmp_path / "secure" / "clients-evaluation.json").read_text())
    assert each["together"]["rows"] == 36
    assert {entry["rows"] for entry in each["clients"]} == {None}, "nobody's own sums are known"
    said = [entry for entry in events(tmp_path / "secure") if entry["event"] == "secure sum"]
    kinds_of_sums = [entry["kind"] for entry in said]
    assert kinds_of_sums[:3] == ["columns", "scale", "scale"]
    assert set(kinds_of_sums[3:]) == {"evaluate"}


@pytest.mark.slow
def test_the_basis_and_the_evaluation_of_a_network(fleet: Fleet, tmp_path: Path) -> None:
    """Whole numbers and moments of digits are exact in fixed point, so the bits are those of plain sums."""
    eigen = {"sites": {"kind": "curvature", "structure": "eigen"}, "selection": {"kind": "round_robin"}}
    given = settings(BNN, **eigen, evaluate={"where": "clients"}, rounds=2)
    here = in_process(given, tmp_path / "plain")
    fleet.run({**given, **SECURE}, tmp_path / "secure")
    for mine, theirs in zip(lines(tmp_path / "secure"), lines(here), strict=True):
        assert mine["selected"] == theirs["selected"]
        assert mine["accuracy"] == pytest.approx(theirs["accuracy"], abs=1e-9)
        assert mine["nll"] == pytest.approx(theirs["nll"], rel=1e-5)


@pytest.mark.slow
def test_an_evaluation_below_the_threshold_is_left_out_and_the_run_goes_on(fleet: Fleet, tmp_path: Path) -> None:
    """With three clients all are needed; one is lost in the first round's evaluation."""
    given = settings(BLR, evaluate={"where": "clients"}, selection={"kind": "round_robin"}, rounds=2, **SECURE)
    given["engine"] = {**QUICK, "on_missing": "proceed"}

    def reached(request: Message) -> bool:
        head = from_record(request.content).head
        return not (head.get("phase") == "masked" and head["round"] == 1 and head["client"] == 2)

    fleet.grid.before = reached
    fleet.run(given, tmp_path / "run")
    first, second = lines(tmp_path / "run")
    assert first["accuracy"] is None
    assert first["evaluation"]["missing"] == list(range(CLIENTS))
    assert second["accuracy"] > 0.5
    (said,) = [entry for entry in events(tmp_path / "run") if entry["event"] == "no evaluation"]
    assert "nothing was revealed" in said["reason"]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: own_config(**SECURE, **CLOSED, partition={"clients": 2}), "at least 3 clients, got 2"),
        (lambda: config_of(settings(BLR, **SECURE)), "has no use here"),
    ],
)
def test_configs_that_secure_sums_do_not_go_with(build: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        build()


def test_secure_sums_need_nodes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs engine.kind = 'flower'"):
        in_process(settings(BLR, evaluate={"where": "clients"}, **SECURE), tmp_path / "run")


def test_the_section_is_written_where_it_says_something_and_a_policy_demands_it() -> None:
    secure, usual = own_config(**SECURE, **CLOSED), own_config(**CLOSED)
    assert "privacy" not in usual.to_dict()
    assert secure.to_dict()["privacy"]["sums"] == "secure"
    policy = make_policy(secure)
    assert policy.messages == ["hello", "ask", "train", "secure"]
    assert policy.privacy is not None
    assert policy.privacy.sums == "secure"
