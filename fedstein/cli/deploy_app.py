"""The commands ``fedstein deploy``: Fedstein on Flower, with clients in processes of their own."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedstein.cli.options import ConfigFile, Inputs, PlainHelp, Preset, Quiet, Seed, Set, split_inputs
from fedstein.errors import InputError

deploy_app = typer.Typer(
    help="Run Fedstein on Flower, with each client in a process of its own. Needs fedstein[flower].",
    no_args_is_help=True,
)


@deploy_app.callback()
def _deploy() -> None:
    if not find_spec("flwr") or not find_spec("cryptography"):
        raise InputError("fedstein deploy needs Flower; install it with: pip install 'fedstein[flower]'")


@deploy_app.command("demo", cls=PlainHelp)
def deploy_demo(
    inputs: Inputs = None,
    clients: Annotated[int | None, typer.Option(min=1, help="The number of clients; default: 3.")] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="The number of SuperNodes that play them; default: one for each client.")
    ] = None,
    settings: Set = None,
    seed: Seed = None,
    preset: Preset = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Encrypt the connections and admit only nodes with a registered key.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The run folder: new, empty, or that of an unfinished demo to continue.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run a config on this machine through a SuperLink and SuperNodes, which are real processes, and stop them.

    \b
    Example:
      fedstein deploy demo --clients 3 --set rounds=5 --out runs/demo
    """
    from fedstein.cli.deploy import demo

    demo(*split_inputs(inputs, settings), seed, preset, clients, nodes, tls, out, quiet)


@deploy_app.command("app", cls=PlainHelp)
def deploy_app_folder(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write the app to.")],
    config: ConfigFile = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="N|NAME,...", help="The number of nodes, or their names; default: partition.clients of the config."
        ),
    ] = None,
    settings: Set = None,
    seed: Seed = None,
    preset: Preset = None,
    out: Annotated[Path | None, typer.Option(help="The run folder on the machine of the server.")] = None,
    host: Annotated[str, typer.Option(help="The name or address at which nodes reach the SuperLink.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="The first of the ports that the SuperLink listens on.")
    ] = 8000,
) -> None:
    """Write the app folder for flwr run, and print the commands to start the SuperLink and each node.

    \b
    Example:
      fedstein deploy app my-app config.toml --nodes north,south --host link.example.org
    """
    from fedstein.cli.deploy import make_app

    make_app(folder, config, settings or [], seed, preset, nodes, out, host, port)


@deploy_app.command("certs", cls=PlainHelp)
def deploy_certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the certificates and keys.")],
    host: Annotated[list[str] | None, typer.Option(help="A name or address of the SuperLink; may be repeated.")] = None,
    nodes: Annotated[
        str, typer.Option(metavar="N|NAME,...", help="The number of nodes to make keys for, or their names.")
    ] = "3",
    days: Annotated[int, typer.Option(help="The number of days for which the certificate is valid.")] = 90,
) -> None:
    """Make a certificate authority, a certificate for the SuperLink and keys for the nodes, for trials.

    A real deployment uses certificates of its own.

    \b
    Example:
      fedstein deploy certs certs --host link.example.org --nodes north,south
    """
    from fedstein.cli.deploy import make_certs

    make_certs(folder, host or [], nodes, days)
