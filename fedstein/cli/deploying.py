"""``fedstein deploy``: a demo on one machine, the app folder for ``flwr run``, certificates for trials."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedstein.cli import say
from fedstein.cli.progress import show_progress
from fedstein.cli.running import conclude, free_folder, headline, read_config
from fedstein.engines.flower.appdir import flatten, write_app
from fedstein.engines.flower.certs import make_certificates, next_steps, node_names
from fedstein.engines.flower.command import Value
from fedstein.engines.flower.environment import tail
from fedstein.engines.flower.howto import print_commands
from fedstein.engines.flower.processes import Fleet, Tls
from fedstein.errors import FedsteinError, InputError
from fedstein.runs.config import Config
from fedstein.runs.folder import RunFolder, refuse_used

NODES = 3  # of a demo, unless the user says otherwise
LOOK_EVERY = 0.2  # seconds between two looks at the run folder
ASK_EVERY = 5.0  # seconds between two questions to the link: each starts a process
SHOWN = ("left", "missing", "rejected", "turned away", "failed", "left out", "site sent back")


def flower_config(
    config_file: Path | None, settings: list[str], seed: int | None, preset: str | None, clients: int | None
) -> Config:
    """The full config of a run on Flower."""
    given = [*settings, "engine.kind=flower"]
    if clients is not None:
        given.append(f"partition.clients={clients}")
    return read_config(config_file, given, seed, preset)[0]


def demo(
    config_file: Path | None,
    settings: list[str],
    seed: int | None,
    preset: str | None,
    clients: int | None,
    tls: bool,
    out: Path | None,
    quiet: bool,
) -> None:
    """Start a link and nodes here, run the config through them, stop everything; an unfinished ``out`` goes on."""
    if out is not None and (out / "config.toml").exists():
        folder, config = unfinished(out, config_file, settings, seed, preset, clients)
    else:
        config = flower_config(config_file, settings, seed, preset, clients or NODES)
        folder = out or free_folder(config)
        refuse_used(folder)
    folder = folder.absolute()
    work = folder.with_name(folder.name + ".nodes")
    if not quiet:
        say(headline(config))
        say(f"a SuperLink and {config.partition.clients} SuperNodes on this machine; their logs: {work}")
    try:
        summary = through_fleet(config, folder, work, tls, quiet)
    except KeyboardInterrupt:
        raise FedsteinError(f"stopped; continue with: fedstein deploy demo --out {folder}") from None
    shutil.rmtree(work, ignore_errors=True)
    if not quiet:
        conclude(folder, summary)


def unfinished(
    out: Path,
    config_file: Path | None,
    settings: list[str],
    seed: int | None,
    preset: str | None,
    clients: int | None,
) -> tuple[Path, Config]:
    """A demo that goes on: its config is its own."""
    folder, config = RunFolder.open(out)
    if folder.summary_file.exists():
        raise InputError(f"{out} is finished: all {config.rounds} rounds are done; choose another folder with --out")
    if config.engine.kind != "flower":
        raise InputError(f"{out} is a run in process; continue it with: fedstein resume {out}")
    if config_file or settings or seed is not None or preset or clients is not None:
        raise InputError(f"{out} is unfinished and goes on with its own config; leave out the other options")
    return out, config


def through_fleet(config: Config, folder: Path, work: Path, tls: bool, quiet: bool) -> dict[str, Any]:
    """Everything that is started here ends here."""
    clients = range(config.partition.clients)
    names = [f"client-{client}" for client in clients]
    certificates = work / "certs"
    if tls and not certificates.exists():
        make_certificates(certificates, nodes=names)
    app = work / "app"
    write_app(app, {**flatten(config.to_dict()), "out": str(folder)})
    trust = Tls.of(certificates) if tls else None
    with Fleet(work, tls=trust, authenticate=tls, threads=config.engine.threads) as fleet:
        fleet.start_link()
        for client, name in zip(clients, names, strict=True):
            key = certificates / f"node-{name}.key" if tls else None
            if tls:
                fleet.register(certificates / f"node-{name}.pub", name)
            node: dict[str, Value] = {"name": name, "partition-id": client, "state-dir": str(work / "state" / name)}
            fleet.start_node(name, node, key, wait=tls)
        run = fleet.submit(app)
        with show_progress(config.rounds, quiet) as on_round:
            follow(fleet, run, folder, on_round, quiet)
    return json.loads((folder / "summary.json").read_text())


def follow(fleet: Fleet, run: int, folder: Path, on_round: Callable[[Mapping[str, Any]], None], quiet: bool) -> None:
    """Show the lines of the run as they are written; ends with the run."""
    rounds, happened = Follower(folder / "rounds.jsonl"), Follower(folder / "events.jsonl")
    asked = time.monotonic()
    while not (folder / "summary.json").exists():
        for record in rounds.fresh():
            on_round(record)
        for event in happened.fresh():
            if event["event"] in SHOWN and not quiet:
                reason = f": {event['reason']}" if event.get("reason") else ""
                print(f"fedstein: {event['name']} {event['event']}{reason}", file=sys.stderr, flush=True)
        if time.monotonic() - asked > ASK_EVERY:
            asked = time.monotonic()
            status = fleet.status(run)
            if status.startswith("finished") and not (folder / "summary.json").exists():
                raise FedsteinError(f"{last_words(fleet, run)} (logs: {fleet.folder})")
        time.sleep(LOOK_EVERY)
    for record in rounds.fresh():
        on_round(record)


class Follower:
    """Whole lines of a file that grows, each once."""

    def __init__(self, path: Path):
        self.path, self.at = path, 0

    def fresh(self) -> list[dict[str, Any]]:
        try:
            content = self.path.read_bytes()
        except OSError:
            return []
        end = content.rfind(b"\n") + 1
        if end < self.at:  # cut back by a resume
            self.at = 0
        lines, self.at = content[self.at : end].splitlines(), max(end, self.at)
        return [json.loads(line) for line in lines]


def last_words(fleet: Fleet, run: int) -> str:
    """What the server process said last to people, or else the end of what it said; kept with the other logs."""
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
    """The app folder, and what to type where."""
    named = node_names(nodes) if nodes else ()
    config = flower_config(config_file, settings, seed, preset, len(named) or None)
    names = named or [f"client-{client}" for client in range(config.partition.clients)]
    run = (out or free_folder(config)).absolute()
    write_app(folder, {**flatten(config.to_dict()), "out": str(run)})
    about: dict[str, dict[str, Value]] = {}
    for client, name in enumerate(names):
        own: dict[str, Value] = {"data": f"/path/of/{name}.csv"} if config.data.name == "nodes" else {}
        about[name] = {"name": name, **(own or {"partition-id": client}), "state-dir": f"~/.fedstein/state/{name}"}
    print(print_commands(folder.absolute(), about, host=host, port=port, threads=config.engine.threads))
    if config.data.name == "nodes":
        print("# data: each node's own CSV, Parquet or NPZ file")


def make_certs(folder: Path, hosts: list[str], nodes: str, days: int) -> None:
    print(next_steps(make_certificates(folder, hosts=hosts, nodes=node_names(nodes), days=days)))
