"""The commands ``fedstein deploy``: a demo on one machine, an app folder for ``flwr run``, certificates for trials."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedstein.cli.progress import show_progress
from fedstein.cli.run import headline, print_results, read_config, unused_folder
from fedstein.console import say
from fedstein.errors import FedsteinError, InputError
from fedstein.flower.launch.appdir import flatten, read_app, write_app
from fedstein.flower.launch.certs import make_certificates, next_steps, node_names
from fedstein.flower.launch.command import Value
from fedstein.flower.launch.environment import tail
from fedstein.flower.launch.fleet_types import Tls
from fedstein.flower.launch.instructions import print_commands
from fedstein.flower.launch.processes import Fleet
from fedstein.flower.node.client_ids import ranges
from fedstein.runs.config import Config, resolve
from fedstein.runs.federate import facts_of, load_dataset
from fedstein.runs.folder import RunFolder, refuse_used

NODES = 3  # the default number of nodes of a demo
LOOK_EVERY = 0.2  # seconds between two reads of the run folder
ASK_AFTER = 10.0  # seconds without news after which the SuperLink is asked for the status; that starts a process
SHOWN = (
    "left",
    "missing",
    "rejected",
    "turned away",
    "failed",
    "left out",
    "site sent back",
    "waiting",
    "after the rounds",
)


def flower_config(
    config_file: Path | None, settings: list[str], seed: int | None, preset: str | None, clients: int | None
) -> Config:
    """Resolve the full config of a run on Flower."""
    given = [*settings, "engine.kind=flower"]
    if clients is not None:
        given.append(f"partition.clients={clients}")
    return read_config(config_file, given, seed, preset)[0]


def agreed_config(path: Path, settings: list[str], seed: int | None, preset: str | None) -> Config:
    """Resolve the config of a run on Flower from a config file, or from the folder that ``make_app`` wrote.

    Raises:
        InputError: If there is no config, or options were given for a folder, which spells everything out.
    """
    if not path.is_dir():
        if not path.exists():
            raise InputError(f"expected a config file or the folder of an app, found nothing at {path}")
        return flower_config(path, settings, seed, preset, None)
    if settings or seed is not None or preset:
        raise InputError(f"{path} spells every setting out; leave out --set, --seed and --preset")
    raw = {key: value for key, value in read_app(path).items() if key != "out"}
    return resolve({**raw, "engine": {**raw.get("engine", {}), "kind": "flower"}}, facts_of(load_dataset(raw)))[0]


def demo(
    config_file: Path | None,
    settings: list[str],
    seed: int | None,
    preset: str | None,
    clients: int | None,
    nodes: int | None,
    tls: bool,
    out: Path | None,
    quiet: bool,
) -> None:
    """Start a SuperLink and nodes on this machine, run a config through them, and stop everything.

    If ``out`` holds an unfinished demo, the demo continues.

    Args:
        config_file: The TOML file, or None.
        settings: The values of ``--set``.
        seed: The seed of the run, or None.
        preset: The name of a preset, or None.
        clients: The number of clients, or None for the default.
        nodes: The number of nodes that play them, or None for a node for each client.
        tls: Whether to encrypt connections and authenticate nodes.
        out: The run folder, or None to choose one.
        quiet: Whether to print no progress.

    Raises:
        InputError: If ``out`` cannot be used.
        FedsteinError: If the run fails or the user stops it.
    """
    if out is not None and (out / "config.toml").exists():
        folder, config = open_unfinished(out, config_file, settings, seed, preset, clients)
    else:
        config = flower_config(config_file, settings, seed, preset, clients or NODES)
        folder = out or unused_folder(config)
        refuse_used(folder)
    folder = folder.absolute()
    work = folder.with_name(folder.name + ".nodes")
    if not quiet:
        say(headline(config))
        count = min(nodes or config.partition.clients, config.partition.clients)
        say(f"a SuperLink and {count} SuperNode{'s' if count > 1 else ''} on this machine; their logs: {work}")
    try:
        summary = run_on_fleet(config, folder, work, tls, quiet, nodes)
    except KeyboardInterrupt:
        raise FedsteinError(f"stopped; continue with: fedstein deploy demo --out {folder}") from None
    shutil.rmtree(work, ignore_errors=True)
    if not quiet:
        print_results(folder, summary)


def open_unfinished(
    out: Path,
    config_file: Path | None,
    settings: list[str],
    seed: int | None,
    preset: str | None,
    clients: int | None,
) -> tuple[Path, Config]:
    """Open the folder of an unfinished demo, which continues with its own config.

    Raises:
        InputError: If the run is finished, is not a run on Flower, or the user gave other options as well.
    """
    folder, config = RunFolder.open(out)
    if folder.summary_file.exists():
        raise InputError(f"{out} is finished: all {config.rounds} rounds are done; choose another folder with --out")
    if config.engine.kind != "flower":
        raise InputError(f"{out} is a run in process; continue it with: fedstein resume {out}")
    if config_file or settings or seed is not None or preset or clients is not None:
        raise InputError(f"{out} is unfinished and continues with its own config; leave out the other options")
    return out, config


def run_on_fleet(
    config: Config, folder: Path, work: Path, tls: bool, quiet: bool, nodes: int | None = None
) -> dict[str, Any]:
    """Run a config through processes that are started and stopped here, and return the summary of the run."""
    about = nodes_of_demo(config.partition.clients, nodes, work / "state")
    certificates = work / "certs"
    if tls and not certificates.exists():
        make_certificates(certificates, nodes=list(about))
    app = work / "app"
    write_app(app, {**flatten(config.to_dict()), "out": str(folder)})
    trust = Tls.of(certificates) if tls else None
    with Fleet(work, tls=trust, authenticate=tls, threads=config.engine.threads) as fleet:
        fleet.start_link()
        for name, settings in about.items():
            key = certificates / f"node-{name}.key" if tls else None
            if tls:
                fleet.register(certificates / f"node-{name}.pub", name)
            fleet.start_node(name, settings, key, wait=tls)
        run = fleet.submit(app)
        with show_progress(config.rounds, quiet) as on_round:
            follow(fleet, run, folder, on_round, quiet)
    return json.loads((folder / "summary.json").read_text())


def nodes_of_demo(clients: int, nodes: int | None, state: Path) -> dict[str, dict[str, Value]]:
    """The node configs of a demo by name: a node for each client, or fewer nodes that play several each."""
    if nodes is None or nodes >= clients:
        names = [f"client-{client}" for client in range(clients)]
        return {
            name: {"name": name, "partition-id": client, "state-dir": str(state / name)}
            for client, name in enumerate(names)
        }
    return {f"node-{part}": {"partition-ids": part, "state-dir": str(state)} for part in ranges(clients, nodes)}


def follow(fleet: Fleet, run: int, folder: Path, on_round: Callable[[Mapping[str, Any]], None], quiet: bool) -> None:
    """Print the rounds and events of a run as they are written, until the run ends."""
    rounds, happened = Follower(folder / "rounds.jsonl"), Follower(folder / "events.jsonl")
    news = time.monotonic()
    while not (folder / "summary.json").exists():
        for record in rounds.new_lines():
            news = time.monotonic()
            on_round(record)
        for event in happened.new_lines():
            if event["event"] in SHOWN and not quiet:
                reason = f": {event['reason']}" if event.get("reason") else ""
                what = f"{event['name']} {event['event']}".strip()
                print(f"fedstein: {what}{reason}", file=sys.stderr, flush=True)
        if time.monotonic() - news > ASK_AFTER:
            news = time.monotonic()
            status = fleet.status(run)
            if status.startswith("finished") and not (folder / "summary.json").exists():
                raise FedsteinError(f"{last_message(fleet, run)} (logs: {fleet.folder})")
        time.sleep(LOOK_EVERY)
    for record in rounds.new_lines():
        on_round(record)


class Follower:
    """Reads the complete lines of a growing file, each line once."""

    def __init__(self, path: Path):
        self.path, self.at = path, 0

    def new_lines(self) -> list[dict[str, Any]]:
        """Return the lines that were completed since the last call."""
        try:
            content = self.path.read_bytes()
        except OSError:
            return []
        end = content.rfind(b"\n") + 1
        if end < self.at:  # a resumed run has shortened the file
            self.at = 0
        lines, self.at = content[self.at : end].splitlines(), max(end, self.at)
        return [json.loads(line) for line in lines]


def last_message(fleet: Fleet, run: int) -> str:
    """Return the last message of the server process, or else the end of its log. The log is kept with the others."""
    text = fleet.logs(run)
    (fleet.folder / "server.log").write_text(text)
    said = re.findall(r"^fedstein: (.*)$", text, re.MULTILINE)
    return said[-1] if said else f"the run failed; the server said: {tail(text)}"


def make_app(
    folder: Path,
    config_file: Path | None,
    settings: list[str],
    seed: int | None,
    preset: str | None,
    nodes: str | None,
    out: Path | None,
    host: str,
    port: int,
) -> None:
    """Write the app folder for ``flwr run``, and print the commands to start every part.

    Args:
        folder: The folder of the app.
        config_file: The TOML file, or None.
        settings: The values of ``--set``.
        seed: The seed of the run, or None.
        preset: The name of a preset, or None.
        nodes: The number of nodes or their names, separated by commas, or None.
        out: The run folder on the server, or None to choose one.
        host: The name or address of the SuperLink.
        port: The first port of the SuperLink.

    Raises:
        InputError: If the config or the names are invalid.
    """
    named = node_names(nodes) if nodes else ()
    config = flower_config(config_file, settings, seed, preset, len(named) or None)
    names = named or [f"client-{client}" for client in range(config.partition.clients)]
    run = (out or unused_folder(config)).absolute()
    write_app(folder, {**flatten(config.to_dict()), "out": str(run)})
    about: dict[str, dict[str, Value]] = {}
    for client, name in enumerate(names):
        own: dict[str, Value] = {}
        if config.data.name == "nodes":
            own = {"data": f"/path/of/{name}.csv", "policy": f"{name}.policy.toml"}
        about[name] = {"name": name, **(own or {"partition-id": client}), "state-dir": f"~/.fedstein/state/{name}"}
    print(print_commands(folder.absolute(), about, host=host, port=port, threads=config.engine.threads))
    if config.data.name == "nodes":
        print(
            "# data: each node's own CSV, Parquet or NPZ file; policy: what the node answers, for its operator to read"
        )


def make_certs(folder: Path, hosts: list[str], nodes: str, days: int) -> None:
    """Write certificates and keys for a trial, and print the next steps."""
    print(next_steps(make_certificates(folder, hosts=hosts, nodes=node_names(nodes), days=days)))
