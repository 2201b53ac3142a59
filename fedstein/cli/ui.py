"""The command ``fedstein ui``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer


def ui(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="The folder that holds run folders, at any depth, or one run.")
    ] = Path("runs"),
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The port; default: 8017, or the next one that is free.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Only the default keeps other machines out.")
    ] = "127.0.0.1",
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser; or print its address only.")
    ] = True,
) -> None:
    """Watch and compare runs on a web page of this machine, while they go on. Needs fedstein[ui].

    \b
    Example:
      fedstein ui runs --no-browser
    """
    import webbrowser

    from fedstein.report.serve import LOOPBACK, serve

    def started(address: str) -> None:
        reach = "Only this machine can reach the page, and only with the token in the address."
        if host not in LOOPBACK:
            reach = f"Others can reach the page at {host}, unencrypted; whoever has the token sees the runs."
        print(f"following the runs in {folder}\nopen {address}\n{reach} Ctrl-C ends it.", flush=True)
        if browser:
            webbrowser.open(address)

    with suppress(KeyboardInterrupt):
        serve(folder, host, port, started)
