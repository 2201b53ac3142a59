"""Rounds on Flower against the same rounds in process, by phase; bytes by kind of message and codec; idle nodes."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from fedstein.errors import FedsteinError
from fedstein.federation.channel import KINDS, NOTHING, Broadcast, Channel
from fedstein.federation.codecs import CODECS
from fedstein.federation.protocol import first, run_round
from fedstein.flower.launch.appdir import flatten, write_app
from fedstein.flower.launch.processes import Fleet
from fedstein.inference.sites.base import Arrays
from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run

NODES = 3
ANSWERED = re.compile(r"fedstein: (\w+), round (\d+): answered in ([\d.]+) s")
TASKS: dict[str, tuple[dict[str, Any], int, int]] = {  # name -> config, rounds of a full and of a quick measurement
    "logistic regression, KSD": (
        {"selection": {"kind": "ksd"}, "sites": {"expand": "mean"}, "partition": {"clients": NODES}},
        20,
        5,
    ),
    "network on MNIST, default": ({"data": {"name": "mnist"}, "partition": {"clients": NODES}}, 8, 3),
    "network on MNIST, int4 and deflate": (
        {
            "data": {"name": "mnist"},
            "partition": {"clients": NODES},
            "channel": {"codec": "int4", "packing": "deflate"},
        },
        8,
        3,
    ),
}
SETTLE, WATCH = 40.0, 30.0  # seconds after which nodes count as idle, and for which they are watched then
MOST = 1800.0  # seconds for a run
NETWORK: dict[str, Any] = {  # the default network; sizes depend on neither rows nor steps, packed ones a little
    "data": {"name": "mnist"},
    "partition": {"clients": 27, "rows_per_client": 30},
    "algorithm": {"local_steps": 1},
}


class CountingChannel(Channel):
    """A channel that counts the bytes of each kind of message."""

    def __init__(self, wire: Any):
        super().__init__(wire)
        self.sizes = dict.fromkeys(KINDS, 0)

    def broadcast(self, arrays: Arrays, candidates: Sequence[int], held: Mapping[str, Any] = NOTHING) -> Broadcast:
        before, found = self.down, super().broadcast(arrays, candidates, held)
        self.sizes["broadcast"] += self.down - before
        return found

    def assignment(self, client: int, arrays: Arrays) -> tuple[Arrays, Arrays]:
        before, found = self.down, super().assignment(client, arrays)
        self.sizes["assignment"] += self.down - before
        return found

    def receive(self, kind: str, client: int, arrays: Arrays) -> Arrays:
        before, found = self.up, super().receive(kind, client, arrays)
        self.sizes[kind] += self.up - before
        return found


class Phases(NamedTuple):
    """Seconds of a round on Flower: all of it, and what nodes computed of it for reports and for training."""

    total: float
    reports: float  # the time of the slowest node, because nodes compute side by side
    training: float


def bytes_by_kind(codec: str, packing: str = "none") -> dict[str, int]:
    """The bytes of the second round of the default network on MNIST with 27 clients.

    Args:
        codec: The codec of all messages.
        packing: How encoded arrays are packed.

    Returns:
        Bytes by kind of message.
    """
    channel_settings = {"codec": codec, "packing": packing}
    raw = {**NETWORK, "rounds": 2, "channel": channel_settings, "evaluate": {"every": 1000}, "engine": {"threads": 1}}
    dataset = load_dataset(raw)
    prepared = prepare_run(resolve(raw, facts_of(dataset))[0], dataset)
    channel = CountingChannel(prepared.context.channel.wire)
    context = prepared.context._replace(channel=channel)
    state, _ = run_round(context, first(context))
    channel.sizes = dict.fromkeys(KINDS, 0)
    run_round(context, state)
    return channel.sizes


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a run."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def seconds_in_process(raw: Mapping[str, Any], out: Path) -> list[float]:
    """Seconds of each round after the first, in this process."""
    dataset = load_dataset(raw)
    runner.start(prepare_run(resolve(raw, facts_of(dataset))[0], dataset), out, lambda record: None)
    return [float(record["seconds"]) for record in read_lines(out / "rounds.jsonl")][1:]


def run_on_flower(raw: Mapping[str, Any], folder: Path, threads: int) -> tuple[list[Phases], float]:
    """Run a config through a link and nodes on this machine.

    Args:
        raw: The config.
        folder: An empty folder.
        threads: Threads of each node.

    Returns:
        The phases of each round after the first, and the share of a core that an idle node takes afterwards.

    Raises:
        FedsteinError: The run did not end.
    """
    whole = {**raw, "engine": {"kind": "flower", "threads": threads}}
    config, _ = resolve(whole, facts_of(load_dataset(whole)))
    out, names = folder / "run", [f"client-{client}" for client in range(NODES)]
    write_app(folder / "app", {**flatten(config.to_dict()), "out": str(out)})
    with Fleet(folder / "fleet", threads=threads, patience=300.0) as fleet:
        fleet.start_link()
        for client, name in enumerate(names):
            fleet.start_node(name, {"partition-id": client, "state-dir": str(folder / "state" / name)}, wait=False)
        run, end = fleet.submit(folder / "app"), time.monotonic() + MOST
        while not (out / "summary.json").exists():
            if time.monotonic() > end:
                raise FedsteinError(f"the run on Flower did not end in {MOST:.0f} s: {fleet.logs(run)[-500:]}")
            time.sleep(0.5)
        answered = [ANSWERED.findall(fleet.log(name)) for name in names]
        groups = set(fleet.groups(*names))
        time.sleep(SETTLE)
        before = cpu_seconds(groups)
        time.sleep(WATCH)
        idle = (cpu_seconds(groups) - before) / WATCH / NODES
    records = read_lines(out / "rounds.jsonl")
    return [phases(record, answered) for record in records[1:]], idle


def phases(record: Mapping[str, Any], answered: Sequence[Sequence[tuple[str, str, str]]]) -> Phases:
    """The phases of one round, from its record and from what each node's log says of its answers."""

    def slowest(kind: str) -> float:
        own = [[float(s) for what, at, s in log if (what, int(at)) == (kind, record["round"])] for log in answered]
        return max((sum(seconds) for seconds in own), default=0.0)

    return Phases(float(record["seconds"]), slowest("ask"), slowest("train"))


def cpu_seconds(groups: set[int]) -> float:
    """The CPU seconds that the processes of these groups have used so far."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[2]) in groups:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(quick: bool, threads: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure everything.

    Args:
        quick: Whether to play fewer rounds.
        threads: Threads of each process that computes.
        progress: Is told what is measured now.

    Returns:
        The document: ``tasks``, ``bytes`` and the load of the machine before and after.
    """
    load, tasks = os.getloadavg()[0], []
    for name, (base, full, few) in TASKS.items():
        progress(f"{name}: in process, then on Flower")
        raw = {**base, "rounds": few if quick else full, "engine": {"threads": threads}}
        with TemporaryDirectory() as folder:
            here = seconds_in_process(raw, Path(folder) / "here")
            there, idle = run_on_flower(raw, Path(folder), threads)
        columns = {key: [getattr(each, key) for each in there] for key in Phases._fields}
        found = {key: {"least": min(values), "median": float(np.median(values))} for key, values in columns.items()}
        inside = {"least": min(here), "median": float(np.median(here))}
        tasks.append({"name": name, "rounds": len(there), "in_process": inside, "on_flower": found, "idle": idle})
    progress("bytes by kind of message and codec")
    sizes = {codec: bytes_by_kind(codec) for codec in CODECS}
    sizes |= {f"{codec}, packed": bytes_by_kind(codec, "deflate") for codec in CODECS}
    return {"nodes": NODES, "threads": threads, "tasks": tasks, "bytes": sizes, "load": [load, os.getloadavg()[0]]}
