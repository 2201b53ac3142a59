"""The ServerApp: a thin shell around ``server.run_over``. Its settings are the run config of ``flwr run``."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedstein.errors import FedsteinError, InputError

LAST_WORDS = 1.0  # seconds in which Flower hands over what was said; it does not wait for that by itself

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One run; the folder that ``out`` names is made, or continued where it holds an unfinished run."""
    from fedstein.cli.progress import plain_lines
    from fedstein.engines.flower.events import Events
    from fedstein.engines.flower.post import GridPost
    from fedstein.engines.flower.server import run_over

    try:
        raw, out = settings_of(context.run_config)
        summary = run_over(GridPost(grid), raw, out, Events(), plain_lines(int(raw.get("rounds", 120))))
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
    """The run config (dotted keys) as a config of Fedstein's, and the run folder."""
    from fedstein.engines.flower.appdir import unflatten

    given = dict(flat)
    out = str(given.pop("out", "")).strip()
    if not out:
        raise InputError('expected out = "FOLDER" in the run config, got none; add -c \'out="/path/of/the/run"\'')
    return unflatten(given), Path(out).expanduser().absolute()
