"""Flower's own way, a process for every message, which client apps of one's own need: ``isolation="subprocess"``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from flower_runs import BLR, BNN, events, in_process, lines, settings
from real import Scene, play_on, start_fleet

from fedstein.flower.launch.appdir import write_app
from fedstein.flower.launch.processes import Fleet

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with start_fleet(tmp_path_factory.mktemp("fleet"), isolation="subprocess") as made:
        yield made


@pytest.fixture
def scene(fleet: Fleet, tmp_path: Path) -> Iterator[Scene]:
    with play_on(fleet, tmp_path) as made:
        yield made


def test_a_process_for_every_message_gives_the_same_bits(scene: Scene, tmp_path: Path) -> None:
    raw = settings(BLR, selection={"kind": "ksd"}, sites={"kind": "curvature", "structure": "full"}, rounds=2)
    scene.submit(raw)
    assert scene.finish() == lines(in_process(raw, tmp_path / "whole"))
    assert not scene.happened("asked again")


ROGUE = """
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from fedstein.flower import answer
from fedstein.flower.records import arrays_content, from_record, to_record

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
    head = from_record(reply.content).head
    return Message(to_record(head, arrays_content(arrays)), reply_to=message)
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
