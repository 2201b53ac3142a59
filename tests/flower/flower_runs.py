"""Runs over the loopback grid, beside the same runs in process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import Message
from loopback import LoopGrid
from small_run import without_passes

from fedstein.flower.records import arrays_content, from_record, to_record
from fedstein.flower.server.events import Events
from fedstein.flower.server.run import run_over
from fedstein.flower.server.transport import GridTransport
from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run

CLIENTS = 3
BNN = {
    "data": {"name": "digits"},
    "partition": {"clients": CLIENTS, "rows_per_client": 40},
    "model": {"kind": "bnn_classifier", "hidden": [6]},
    "algorithm": {"particles": 4, "local_steps": 2, "batch_size": 20},
}
BLR = {
    "data": {"name": "breast_cancer"},
    "partition": {"clients": CLIENTS},
    "algorithm": {"particles": 5, "local_steps": 3},
}
# No test waits longer than this for a reply that does not come.
QUICK = {"threads": 1, "report_timeout": 0.3, "train_timeout": 0.3, "start_timeout": 5.0, "patience": 5.0}


def settings(base: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """A config with sections merged into it. Sites are those of the rounds, unless a section says otherwise."""
    raw: dict[str, Any] = {"seed": 3, "rounds": 4, **{k: dict(v) for k, v in base.items()}, "engine": {"threads": 1}}
    for name, given in sections.items():
        raw[name] = {**raw.get(name, {}), **given} if isinstance(given, dict) else given
    return without_passes(raw)


def lines(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def replace_arrays(message: Message, arrays: dict[str, Any]) -> None:
    """Put other arrays into a message of ours, beside the same head."""
    record = to_record(from_record(message.content).head, arrays_content(arrays))
    for name in list(message.content):
        del message.content[name]
    for name in record:
        message.content[name] = record[name]


def in_process(raw: dict[str, Any], out: Path) -> Path:
    raw = {**raw, "engine": {"threads": 1}}
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    runner.start(prepare_run(config, dataset), out, lambda record: None)
    return out


class Fleet(NamedTuple):
    """A grid with one node a client, each with a state folder of its own."""

    grid: LoopGrid
    folder: Path

    def run(self, raw: dict[str, Any], out: Path, on_round: Callable[[Any], None] = lambda record: None) -> Path:
        said = Events(lambda line: None)
        run_over(GridTransport(self.grid, said), raw, out, said, on_round)
        return out

    def node(self, client: int) -> dict[str, Any]:
        return {"partition-id": client, "state-dir": str(self.folder / f"node-{client}")}
