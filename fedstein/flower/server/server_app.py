"""Flower's ServerApp: it calls ``run_over``. Its settings are the run config of ``flwr run``."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedstein.errors import FedsteinError, InputError

LAST_WORDS = 1.0  # seconds in which Flower can send the last lines of the log, because it does not wait for them

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one run in the folder that ``out`` names, or continue the unfinished run in it."""
    from fedstein.console import progress_lines
    from fedstein.flower.server.events import Events
    from fedstein.flower.server.run import run_over
    from fedstein.flower.server.transport import GridTransport
    from fedstein.flower.waits import shorten_server_waits

    shorten_server_waits()
    try:
        raw, out = settings_of(context.run_config)
        events = Events()
        summary = run_over(GridTransport(grid, events), raw, out, events, progress_lines(int(raw.get("rounds", 120))))
        final = {name: value for name, value in summary["final"].items() if value is not None}
        print(
            f"fedstein: finished, {', '.join(f'{name} {value:.4f}' for name, value in final.items())}: {out}",
            flush=True,
        )
    except FedsteinError as error:  # one line for people; the exit code tells Flower that the run failed
        print(f"fedstein: {' '.join(str(error).split())}", flush=True)
        time.sleep(LAST_WORDS)
        sys.exit(error.exit_code)


def settings_of(flat: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    """Read the run config of ``flwr run``.

    Args:
        flat: Settings with dotted keys, and ``out``.

    Returns:
        The nested config, and the run folder.

    Raises:
        InputError: ``out`` is missing, or a setting cannot be read.
    """
    from fedstein.flower.launch.appdir import unflatten

    given = dict(flat)
    out = str(given.pop("out", "")).strip()
    if not out:
        raise InputError('expected out = "FOLDER" in the run config, got none; add -c \'out="/path/of/the/run"\'')
    return unflatten(given), Path(out).expanduser().absolute()
