"""The command ``fedstein node``: one client of a deployment, on the machine that has its rows."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedstein.errors import InputError

QUIET_FLOWER = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def node(
    link: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The address of the SuperLink.")],
    state_dir: Annotated[
        Path,
        typer.Option(help="Where the node keeps its site and a parsed copy of its rows; it must outlive restarts."),
    ],
    data: Annotated[Path | None, typer.Option(help="The node's own CSV, Parquet or NPZ file.")] = None,
    partition_id: Annotated[
        int | None, typer.Option(min=0, help="For a trial, instead of --data: the client of a built-in dataset.")
    ] = None,
    name: Annotated[str, typer.Option(help="The node's name in logs and results. Default: that of the file.")] = "",
    plugins: Annotated[
        str, typer.Option(help="Import paths of the plug-ins that this node may import, separated by commas.")
    ] = "",
    root_certificates: Annotated[
        Path | None, typer.Option(help="The certificate of the authority that signed the link's.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The node's private key, where the link asks for one.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Do not encrypt; for a trial on one machine.")] = False,
    isolation: Annotated[
        str,
        typer.Option(
            help="resident: one process answers all messages and keeps rows and compiled programs. "
            "subprocess: Flower starts a process for every message."
        ),
    ] = "resident",
    task_seconds: Annotated[
        float, typer.Option(min=1.0, help="The most seconds that one answer may take (resident).")
    ] = 3600.0,
    memory: Annotated[
        float, typer.Option(min=0.0, help="The most GiB that the computing process may use; 0 for no limit (resident).")
    ] = 0.0,
) -> None:
    """Serve one client of a deployment until it is stopped: its rows stay on this machine.

    \b
    Example:
      fedstein node link.example.org:8000 --root-certificates ca.crt --key clinic-a.key \\
        --data clinic-a.csv --state-dir ~/.fedstein/state/clinic-a
    """
    if not find_spec("flwr"):
        raise InputError("fedstein node needs Flower; install it with: pip install 'fedstein[flower]'")
    if isolation not in ("resident", "subprocess"):
        raise InputError(f"--isolation: expected resident or subprocess, got {isolation!r}")
    if insecure == (root_certificates is not None):
        raise InputError("expected either --root-certificates FILE or --insecure, got both or neither")
    from fedstein.flower.launch.environment import free_port, program
    from fedstein.flower.launch.instructions import node_settings
    from fedstein.flower.node.rows import read_node

    settings: dict[str, str | int] = {"state-dir": str(state_dir.expanduser().absolute())}
    settings |= {"name": name} if name else {}
    settings |= {"data": str(data.expanduser().absolute())} if data else {}
    settings |= {"partition-id": partition_id} if partition_id is not None else {}
    settings |= {"plugins": plugins} if plugins else {}
    read_node(settings)  # a mistake is found here, not at the first message
    if data and not data.expanduser().is_file():
        raise InputError(f"--data: expected a file, found none at {data}")
    words = ["--superlink", link, "--node-config", node_settings(settings)]
    words += ["--insecure"] if root_certificates is None else ["--root-certificates", str(root_certificates)]
    words += ["--auth-supernode-private-key", str(key)] if key else []
    os.environ.update(QUIET_FLOWER)
    if isolation == "subprocess":
        found = program("flower-supernode")
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        os.execv(found, [found, *words, "--port", str(free_port())])
    from fedstein.flower.node.resident import main

    main([*words, "--task-seconds", str(task_seconds), "--memory", str(memory)])
