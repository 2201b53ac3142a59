"""A fleet of real processes with three nodes, and one run after another on it; for the tests with real kills."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flower_runs import BNN, events, lines, settings

from fedstein.flower.launch.appdir import flatten, write_app
from fedstein.flower.launch.environment import tail
from fedstein.flower.launch.processes import Fleet
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset

NAMES = ("client-0", "client-1", "client-2")
# What every node's operator has listed, and what only those of client-0 and client-2 have.
LISTED = ("plugins.loss_scheme", "plugins.tangent_site", "plugins.bfloat16_codec", "plugins.top_two_metric")
SOME_LIST = "plugins.imq_kernel"
LONG = 240.0  # seconds that nothing here takes, on however busy a machine


class Scene:
    """A fleet with its three nodes, and one run on it."""

    def __init__(self, fleet: Fleet, folder: Path):
        self.fleet, self.folder, self.out, self.run = fleet, folder, folder / "run", 0
        self.logged = {name: len(fleet.log(name)) for name in NAMES}  # what earlier runs wrote

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

    def training(self, name: str, number: int) -> int:
        """Wait until the node's client process trains in that round; the id of the process."""
        began = re.compile(rf"fedstein: train, round {number}\x1b?.*$", re.MULTILINE)
        self.until(lambda: began.search(self.fleet.log(name)[self.logged[name] :]), f"training of {name}")
        (process,) = self.fleet.apps(name)
        return process

    def happened(self, event: str) -> list[str]:
        return [entry["name"] for entry in events(self.out) if entry["event"] == event]


@contextmanager
def start_fleet(folder: Path, **options: Any) -> Iterator[Fleet]:
    """A link and three nodes that play clients of a built-in dataset."""
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    variables = {"JAX_COMPILATION_CACHE_DIR": cache} if cache else {}
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])  # where plug-ins are
    with Fleet(folder, variables={**variables, "PYTHONPATH": path}, patience=120, **options) as made:
        made.start_link()
        for client, name in enumerate(NAMES):
            plugins = ",".join(LISTED if client == 1 else (*LISTED, SOME_LIST))
            node = {"name": name, "partition-id": client, "state-dir": str(folder / "state" / name), "plugins": plugins}
            made.start_node(name, node, wait=False)
        yield made


@contextmanager
def play_on(fleet: Fleet, folder: Path) -> Iterator[Scene]:
    """One run on the fleet; afterwards every node runs again."""
    made = Scene(fleet, folder)
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
