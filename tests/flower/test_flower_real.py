"""Real processes, a real network, real kills: the run ends, and where it waits it ends as if nothing had happened.

One fleet serves all tests of a worker; every test has a run of its own on it, compared with the same run in process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from conftest import BLR, BNN, events, in_process, lines, settings

from fedstein.flower.launch.appdir import flatten, write_app
from fedstein.flower.launch.environment import tail
from fedstein.flower.launch.processes import EXEC, Fleet
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset

pytestmark = pytest.mark.slow
NAMES = ("client-0", "client-1", "client-2")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower"
LONG = 240.0  # seconds that nothing here takes, on however busy a machine


class Scene:
    """A fleet with its three nodes, and one run on it."""

    def __init__(self, fleet: Fleet, folder: Path):
        self.fleet, self.folder, self.out, self.run = fleet, folder, folder / "run", 0

    def submit(self, raw: dict[str, Any], **engine: Any) -> None:
        """Start the run, or go on with it."""
        write_app(self.folder / "app", self.config(raw, **engine))
        self.run = self.fleet.submit(self.folder / "app")

    def config(self, raw: dict[str, Any], **engine: Any) -> dict[str, Any]:
        waits = {"kind": "flower", "report_timeout": 60.0, "train_timeout": 60.0, "start_timeout": 120.0, **engine}
        raw = {**raw, "engine": {"threads": 1, **waits}}
        config, _ = resolve(raw, facts_of(load_dataset(raw)))
        return {**flatten(config.to_dict()), "out": str(self.out)}

    def lines(self) -> list[dict[str, Any]]:
        return lines(self.out) if (self.out / "rounds.jsonl").exists() else []

    def until(self, there: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + LONG
        while not (found := there()):
            if time.monotonic() > end:
                pytest.fail(f"no {what} in {LONG} s; the server says: {tail(self.fleet.logs(self.run), 30)}")
            time.sleep(0.1)
        return found

    def after_round(self, number: int) -> None:
        self.until(lambda: len(self.lines()) >= number, f"round {number}")

    def finish(self) -> list[dict[str, Any]]:
        self.until(lambda: (self.out / "summary.json").exists(), "end of the run")
        return self.lines()

    def training(self, name: str) -> int:
        """Wait until the node has a client process at work; its id."""
        apps = self.until(lambda: self.fleet.apps(name), f"client process of {name}")
        return apps[0]

    def happened(self, event: str) -> list[str]:
        return [entry["name"] for entry in events(self.out) if entry["event"] == event]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    with Fleet(folder, variables={"JAX_COMPILATION_CACHE_DIR": cache} if cache else None, patience=120) as made:
        made.start_link()
        for client, name in enumerate(NAMES):
            node = {"name": name, "partition-id": client, "state-dir": str(folder / "state" / name)}
            made.start_node(name, node, wait=False)
        yield made


@pytest.fixture
def scene(fleet: Fleet, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(fleet, tmp_path)
    yield made
    if made.run:
        fleet.stop(made.run)
    for name in NAMES:
        if not fleet.running(name):
            fleet.restart_node(name, wait=False)


def robin(base: dict[str, Any] = BNN, **sections: Any) -> dict[str, Any]:
    return settings(base, **{"selection": {"kind": "round_robin"}, **sections})


SLOW = {"algorithm": {"local_steps": 8000}}  # a training that takes seconds
EIGEN, DIAGONAL = ({"kind": "curvature", "structure": name} for name in ("eigen", "diagonal"))
PARTICLES = {"kind": "particles", "density": "log"}


def test_every_node_reports_and_the_bits_are_those_of_one_process(scene: Scene, tmp_path: Path) -> None:
    raw = settings(BLR, selection={"kind": "ksd"}, sites={"kind": "curvature", "structure": "full"}, rounds=2)
    scene.submit(raw)
    assert scene.finish() == lines(in_process(raw, tmp_path / "whole"))
    for name in ("posterior.safetensors", "gaussian.safetensors"):
        assert (scene.out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert set(scene.happened("joined")) == set(NAMES)
    assert not scene.happened("asked again")


def test_a_node_that_is_killed_while_it_trains(scene: Scene, tmp_path: Path) -> None:
    """Round 2 trains client 1. It comes back under a new id, is asked again, and the run is the one without a fault."""
    raw = robin(sites=EIGEN, rounds=3, **SLOW)
    scene.submit(raw)
    scene.after_round(1)
    scene.training("client-1")
    time.sleep(2.0)  # past its imports
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
    scene.training("client-1")
    assert scene.fleet.kill_apps("client-1") == 1
    assert scene.finish() == lines(in_process(raw, tmp_path / "whole"))
    assert "client-1" in scene.happened("asked again")


def test_a_node_that_is_only_slow(scene: Scene, tmp_path: Path) -> None:
    """It is stopped past the timeout, asked again, and goes on: its update counts once."""
    raw = robin(sites=PARTICLES, rounds=4)
    scene.submit(raw, train_timeout=6.0)
    scene.after_round(1)
    number = scene.training("client-1")
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
    scene.submit(robin(rounds=8), on_missing="proceed", start_timeout=25.0)
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


ROGUE = """
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from fedstein.flower import answer
from fedstein.flower.records import ARRAYS, array_record, from_record

app = ClientApp()

@app.query()
@app.train()
def meddle(message, context):
    reply = answer(message, context)
    envelope = from_record(message.content)
    number = envelope.head["round"]
    if context.node_config["name"] != "client-1" or envelope.head["kind"] != "ask":
        return reply
    arrays = from_record(reply.content).arrays
    if number == 1:
        arrays = {name: array * float("nan") for name, array in arrays.items()}
    elif number == 2:
        arrays = {name: array.astype("float64") for name, array in arrays.items()}
    else:
        return Message(RecordDict({"nonsense": ArrayRecord()}), reply_to=message)
    reply.content[ARRAYS] = array_record(arrays)
    return reply
"""


def test_wrong_replies_of_a_real_node(scene: Scene) -> None:
    """A NaN, another type, and something else altogether: rejected by name; then the client is left out."""
    config = scene.config(settings(BNN, selection={"kind": "ksd"}, rounds=4), leave_out=1)
    path = write_app(scene.folder / "app", config)
    project = tomllib.loads(path.read_text())
    project["tool"]["flwr"]["app"]["components"]["clientapp"] = "rogue.client:app"
    path.write_text(tomli_w.dumps(project))
    (path.parent / "rogue").mkdir()
    (path.parent / "rogue" / "__init__.py").touch()
    (path.parent / "rogue" / "client.py").write_text(ROGUE)
    scene.run = scene.fleet.submit(path.parent)
    found = scene.finish()
    assert [line["faults"] for line in found] == [{"rejected": [1]}] * 3 + [{"left_out": [1]}]
    assert all(line["selected"] != [1] for line in found)
    reasons = [entry["reason"] for entry in events(scene.out) if entry["event"] == "rejected"]
    assert [word in reason for word, reason in zip(("finite", "float64", "records"), reasons, strict=True)] == [
        True
    ] * 3
    assert set(scene.happened("rejected")) == {"client-1"}


def test_the_example_with_a_server_app_of_its_own(scene: Scene, tmp_path: Path) -> None:
    """As its README says; the particles are the model's own, one for each weight and the precision."""
    out = tmp_path / "particles.npy"
    scene.run = scene.fleet.submit(EXAMPLE, {"num-rounds": 3, "selection": "hip", "out": str(out)})
    scene.until(out.exists, "particles")
    particles = np.load(out, allow_pickle=False)
    assert particles.shape == (20, 32)
    assert np.isfinite(particles).all()
    said = scene.until(
        lambda: re.search(r"clinics: chosen \[(.*)\], accuracy (.*)", scene.fleet.logs(scene.run)), "last words"
    )
    assert len(said[1].split(",")) == 3
    assert float(said[2]) > 0.8
