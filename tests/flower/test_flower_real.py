"""Real processes, a real network, real kills: the run ends, and where it waits it ends as if nothing had happened.

The nodes are resident. One fleet serves all tests of a worker; every test has a run of its own on it, compared with the
same run in process.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from flower_runs import BLR, BNN, events, in_process, lines, settings
from real import DIAGONAL, EIGEN, LONG, NAMES, PARTICLES, SLOW, Scene, play_on, robin, start_fleet

from fedstein.flower.launch.processes import EXEC, Fleet
from fedstein.flower.node.policy import make_policy, policy_text
from fedstein.runs.audit import audit
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with start_fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture
def scene(fleet: Fleet, tmp_path: Path) -> Iterator[Scene]:
    with play_on(fleet, tmp_path) as made:
        yield made


def test_every_node_reports_and_the_bits_are_those_of_one_process(scene: Scene, tmp_path: Path) -> None:
    raw = settings(BLR, selection={"kind": "ksd"}, sites={"kind": "curvature", "structure": "full"}, rounds=2)
    scene.submit(raw)
    assert scene.finish() == lines(in_process(raw, tmp_path / "whole"))
    for name in ("posterior.safetensors", "gaussian.safetensors"):
        assert (scene.out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert set(scene.happened("joined")) == set(NAMES)
    assert not scene.happened("asked again")


def test_plug_ins_that_the_nodes_list_give_the_bits_of_one_process(scene: Scene, tmp_path: Path) -> None:
    """A scheme, a kind of site, a codec and a metric of the tests' own, which every node lists."""
    raw = settings(
        BLR,
        model={"kind": "blr"},
        selection={"kind": "plugins.loss_scheme:LOSS", "sharpness": 2.0},
        sites={"kind": "plugins.tangent_site:TANGENT", "trust": 0.5},
        channel={"codec": "plugins.bfloat16_codec:BFLOAT16"},
        evaluate={"metrics": ["plugins.top_two_metric:TOP_TWO"]},
        rounds=2,
    )
    scene.submit(raw)
    found = scene.finish()
    assert found == lines(in_process(raw, tmp_path / "whole"))
    assert found[-1]["top_two"] is not None
    name = "posterior.safetensors"
    assert (scene.out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_node_that_does_not_list_a_plug_in_refuses_it_by_name(scene: Scene) -> None:
    """Client 1 has not listed the kernel; the others have, and go on without it."""
    raw = settings(
        BLR, algorithm={"kernel": "plugins.imq_kernel:IMQ"}, selection={"kind": "ksd"}, sites=PARTICLES, rounds=2
    )
    scene.submit(raw, on_missing="proceed", start_timeout=20.0)
    found = scene.finish()
    (refused,) = [entry for entry in events(scene.out) if entry["event"] == "turned away"]
    assert refused["name"] == "client-1"
    assert "plug-in 'plugins.imq_kernel:IMQ' is not listed on this node" in refused["reason"]
    assert 'plugins="plugins.imq_kernel" in the node config' in refused["reason"]
    assert {client for line in found for client in line["selected"]} <= {0, 2}
    assert all(line["faults"] == {"missing": [1]} for line in found)


def test_a_node_that_is_killed_while_it_trains(scene: Scene, tmp_path: Path) -> None:
    """Round 2 trains client 1. It comes back under a new id, is asked again, and the run is the one without a fault."""
    raw = robin(sites=EIGEN, rounds=3, **SLOW)
    scene.submit(raw)
    scene.after_round(1)
    scene.training("client-1", 2)
    before = scene.fleet.node_id("client-1")
    scene.fleet.kill_node("client-1")
    assert len(scene.lines()) == 1, "it was at work"
    assert scene.fleet.restart_node("client-1") != before
    assert scene.finish() == lines(in_process(raw, tmp_path / "whole"))
    assert "client-1" in scene.happened("asked again")


def test_a_node_that_is_killed_between_rounds(scene: Scene, tmp_path: Path) -> None:
    """Client 0 trains in rounds 1 and 4; in between it dies, and its private site is on its disk."""
    raw = robin(sites=PARTICLES, rounds=5)
    scene.submit(raw)
    scene.after_round(1)
    before = scene.fleet.node_id("client-0")
    scene.fleet.kill_node("client-0")
    assert scene.fleet.restart_node("client-0") != before
    assert scene.finish() == lines(in_process(raw, tmp_path / "whole"))


def test_a_client_process_that_is_killed_while_it_trains(scene: Scene, tmp_path: Path) -> None:
    """Only the process that computes: Flower says so after a while, or the timeout does; the round is asked again."""
    raw = robin(sites=DIAGONAL, rounds=3, **SLOW)
    scene.submit(raw, train_timeout=15.0)
    scene.after_round(1)
    scene.training("client-1", 2)
    assert scene.fleet.kill_apps("client-1") == 1
    assert scene.finish() == lines(in_process(raw, tmp_path / "whole"))
    assert "client-1" in scene.happened("asked again")


def test_a_node_that_is_only_slow(scene: Scene, tmp_path: Path) -> None:
    """It is stopped past the timeout, asked again, and goes on: its update counts once."""
    raw = robin(sites=PARTICLES, rounds=4)
    scene.submit(raw, train_timeout=6.0)
    scene.after_round(1)
    number = scene.training("client-1", 2)
    os.kill(number, signal.SIGSTOP)
    try:
        scene.until(lambda: "client-1" in scene.happened("asked again"), "second request")
    finally:
        os.kill(number, signal.SIGCONT)
    assert scene.finish() == lines(in_process(raw, tmp_path / "whole"))
    counts = json.loads((scene.out / "summary.json").read_text())["selected_counts"]
    assert counts == [2, 1, 1]


def test_a_link_that_is_killed_and_restarted(scene: Scene, tmp_path: Path) -> None:
    raw = robin(rounds=3, **SLOW)
    scene.submit(raw, train_timeout=30.0)
    scene.after_round(1)
    scene.fleet.kill_link()
    scene.fleet.restart_link()
    assert scene.finish() == lines(in_process(raw, tmp_path / "whole"))


def test_a_server_that_is_killed_and_resumed(scene: Scene, tmp_path: Path) -> None:
    raw = settings(BNN, selection={"kind": "hip"}, sites=PARTICLES, rounds=3)
    scene.submit(raw)
    scene.after_round(1)
    assert scene.fleet.kill_apps(EXEC) >= 1
    assert not (scene.out / "summary.json").exists()
    scene.submit(raw)
    assert scene.finish() == lines(in_process(raw, tmp_path / "whole"))
    assert "continuing" in {entry["event"] for entry in events(scene.out)}


def test_a_node_that_leaves_for_good_and_one_that_comes_late(scene: Scene) -> None:
    """Without waiting. Client 2 is not there at first, client 0 leaves after it has joined; the others carry on."""
    scene.fleet.stop_node("client-2")
    raw = robin(rounds=30, algorithm={"local_steps": 4000})  # long enough for a node to start meanwhile
    scene.submit(raw, on_missing="proceed", start_timeout=25.0)
    scene.after_round(2)
    scene.fleet.restart_node("client-2")
    scene.until(lambda: "client-2" in scene.happened("joined"), "late client")
    scene.fleet.stop_node("client-0")
    found = scene.finish()
    assert found[2]["faults"] == {"missing": [2]} or 2 in found[2]["selected"]
    assert 2 in {client for line in found for client in line["selected"]}
    assert found[-1]["selected"] != [0]
    assert any(line["faults"] and 0 in line["faults"]["missing"] for line in found)
    assert all(len(line["selected"]) == 1 for line in found)


def test_reports_that_never_arrive(scene: Scene) -> None:
    """A node that hangs is still connected; its report is given up at the deadline, and it takes part again later."""
    raw = settings(BNN, selection={"kind": "ksd"}, rounds=3)
    scene.submit(raw, on_missing="proceed", report_timeout=15.0)
    scene.after_round(1)
    scene.fleet.pause_node("client-2")
    try:
        scene.after_round(2)
    finally:
        scene.fleet.resume_node("client-2")
    found = scene.finish()
    silent = [line for line in found if line["faults"] and 2 in line["faults"]["missing"]]
    assert silent
    for line in silent:
        assert line["reports"][2] is None
        assert line["selected"] != [2]
    assert "client-2" in scene.happened("missing")


def test_a_node_refuses_what_its_policy_does_not_allow_and_both_ends_say_so(scene: Scene, tmp_path: Path) -> None:
    """The policy allows one target of the node's file; the server names another one."""
    path = tmp_path / "clinic.csv"
    path.write_text("age,ill,hiv\n" + "".join(f"{40 + i},{i % 2},{i // 2 % 2}\n" for i in range(40)))
    allowed = {"name": "nodes", "features": ["age"], "target": "ill", "labels": [0, 1]}
    raw = {"rounds": 1, "data": allowed, "partition": {"clients": 1}, "engine": {"kind": "flower", "threads": 1}}
    config, _ = resolve(raw, facts_of(load_dataset(raw)))
    (tmp_path / "clinic.toml").write_text(policy_text(make_policy(config)))
    about = {"name": "clinic", "data": str(path), "policy": str(tmp_path / "clinic.toml")}
    scene.fleet.start_node("clinic", {**about, "state-dir": str(tmp_path / "state")})
    try:
        scene.submit({**raw, "data": {**allowed, "target": "hiv"}}, start_timeout=12.0)
        assert scene.fleet.wait(scene.run, LONG) == "finished:failed"
        words = "policy clinic.toml does not allow data.target = 'hiv'; it allows: ill"
        assert words in scene.fleet.logs(scene.run)
        assert words in scene.fleet.log("clinic")
    finally:
        scene.fleet.kill_node("clinic")


def kill_in_phases(scene: Scene, phases: Sequence[str]) -> None:
    """Kill a node and start it again, once in each round: as soon as it has the request of that phase."""
    for number, phase in enumerate(phases, 1):
        began = re.compile(rf"fedstein: secure {phase}, round {number}\b")
        scene.until(
            lambda began=began: began.search(scene.fleet.log("client-1")[scene.logged["client-1"] :]), f"phase {phase}"
        )
        scene.fleet.kill_node("client-1")
        scene.fleet.restart_node("client-1", wait=False)


def test_a_node_that_is_killed_within_a_secure_sum(scene: Scene, tmp_path: Path) -> None:
    """All three are needed. The node that dies has its keys on its disk, and each sum is that of all held-out rows."""
    raw = robin(BLR, rounds=2, evaluate={"where": "clients"})
    scene.submit({**raw, "privacy": {"sums": "secure"}})
    kill_in_phases(scene, ("keys", "unmasked"))
    for found, plain in zip(scene.finish(), lines(in_process(raw, tmp_path / "whole")), strict=True):
        assert found["evaluation"]["missing"] == []
        assert found["evaluation"]["rows"] == plain["evaluation"]["rows"]
        assert found["accuracy"] == plain["accuracy"]
        assert found["nll"] == pytest.approx(plain["nll"], rel=1e-12)
    said = [entry["clients"] for entry in events(scene.out) if entry["event"] == "secure sum"]
    assert len(said) >= 2
    assert all(clients == [0, 1, 2] for clients in said)


def test_nodes_share_the_noise_of_a_private_secure_sum(scene: Scene) -> None:
    """A node that dies within a sum has spent its visit once, and the sum of all three has little noise."""
    private = {"kind": "record", "epsilon": 100.0, "visits": 2, "sums": "secure"}
    scene.submit(settings(BLR, rounds=2, privacy=private))
    kill_in_phases(scene, ("shares", "masked"))
    found = scene.finish()
    assert [line["selected"] for line in found] == [[0, 1, 2]] * 2
    said = [entry for entry in events(scene.out) if entry["event"] == "secure sum"]
    assert [(entry["kind"], entry["clients"]) for entry in said] == [("train", [0, 1, 2])] * 2
    for name in NAMES:
        (ledger,) = audit(scene.fleet.folder / "state" / name)
        assert ledger["releases"] == {"gradient": 2, "moments": 2}
        assert ledger["spent"]["epsilon"] == pytest.approx(100.0)
    assert found[-1]["accuracy"] > 0.85
