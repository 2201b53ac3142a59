"""The commands ``fedstein node``: one client of a deployment, on the machine that has its rows, and its policy."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import click
import typer
from typer.core import TyperGroup

from fedstein.cli.options import PlainHelp, Preset, Seed, Set
from fedstein.errors import InputError

QUIET_FLOWER = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


class NodeGroup(TyperGroup):
    """``fedstein node HOST:PORT`` is ``fedstein node start HOST:PORT``."""

    default = "start"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command in front, unless another one is named."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [self.default, *args]
        return super().parse_args(ctx, args)


node_app = typer.Typer(
    cls=NodeGroup,
    help="Serve one client of a deployment (fedstein node HOST:PORT is short for fedstein node start HOST:PORT), or "
    "write down what it answers. Needs fedstein[flower].",
    no_args_is_help=True,
)


@node_app.command("start", cls=PlainHelp)
def start(
    link: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The address of the SuperLink.")],
    state_dir: Annotated[
        Path,
        typer.Option(help="Where the node keeps its site and a parsed copy of its rows; it must outlive restarts."),
    ],
    data: Annotated[Path | None, typer.Option(help="The node's own CSV, Parquet or NPZ file.")] = None,
    partition_id: Annotated[
        int | None, typer.Option(min=0, help="For a trial, instead of --data: the client of a built-in dataset.")
    ] = None,
    partition_ids: Annotated[
        str, typer.Option(metavar="RANGES", help='For a trial: several clients of a built-in dataset, such as "0-249".')
    ] = "",
    target: Annotated[str, typer.Option(help="The column of --data that may be the target; not with --policy.")] = "",
    features: Annotated[
        str,
        typer.Option(help="The columns of --data that may be features, separated by commas, or *; not with --policy."),
    ] = "",
    policy: Annotated[
        Path | None, typer.Option(help="The file that says what this node answers; fedstein node policy writes it.")
    ] = None,
    name: Annotated[str, typer.Option(help="The node's name in logs and results. Default: that of the file.")] = "",
    plugins: Annotated[
        str, typer.Option(help="Import paths of the plug-ins that this node may import, separated by commas.")
    ] = "",
    root_certificates: Annotated[
        Path | None, typer.Option(help="The certificate of the authority that signed the link's.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The node's private key, if the link asks for one.")] = None,
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
    """Serve one client of a deployment until it is stopped: its rows stay on this machine. In a trial, one or several.

    \b
    Example:
      fedstein node start link.example.org:8000 --root-certificates ca.crt --key clinic-a.key \\
        --data clinic-a.csv --policy clinic-a.toml --state-dir ~/.fedstein/state/clinic-a
    """
    if not find_spec("flwr"):
        raise InputError("fedstein node needs Flower; install it with: pip install 'fedstein[flower]'")
    if isolation not in ("resident", "subprocess"):
        raise InputError(f"--isolation: expected resident or subprocess, got {isolation!r}")
    if insecure == (root_certificates is not None):
        raise InputError("expected either --root-certificates FILE or --insecure, got both or neither")
    from fedstein.flower.launch.environment import free_port, program
    from fedstein.flower.launch.instructions import node_settings
    from fedstein.flower.node.rows import policy_of, read_node

    settings: dict[str, str | int] = {"state-dir": str(state_dir.expanduser().absolute())}
    settings |= {"name": name} if name else {}
    settings |= {"data": str(data.expanduser().absolute())} if data else {}
    settings |= {"partition-id": partition_id} if partition_id is not None else {}
    settings |= {"partition-ids": partition_ids} if partition_ids else {}
    settings |= {"plugins": plugins} if plugins else {}
    settings |= {"target": target} if target else {}
    settings |= {"features": features} if features else {}
    settings |= {"policy": str(policy.expanduser().absolute())} if policy else {}
    policy_of(read_node(settings))  # read now, so that a mistake is found before the first message
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


@node_app.command("policy", cls=PlainHelp)
def policy(
    agreed: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG.toml|APP",
            help="The config that was agreed on, or the folder that fedstein deploy app wrote.",
        ),
    ],
    settings: Set = None,
    seed: Seed = None,
    preset: Preset = None,
    least_rows: Annotated[
        int, typer.Option(min=1, help="The fewest rows that an answer may be computed from; 1 allows every answer.")
    ] = 5,
) -> None:
    """Print the policy that allows this config and nothing else: columns, model, method, scheme, site, messages, run.

    \b
    Example:
      fedstein node policy study.toml > clinic-a.toml
    """
    if not find_spec("flwr"):
        raise InputError("fedstein node needs Flower; install it with: pip install 'fedstein[flower]'")
    from fedstein.cli.deploy import agreed_config
    from fedstein.flower.node.policy import make_policy, policy_text

    print(policy_text(make_policy(agreed_config(agreed, settings or [], seed, preset), least_rows)), end="")
