"""The command ``fedstein forget``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fedstein.cli.run import number
from fedstein.console import say
from fedstein.inference.sites.settle import TOLERANCE
from fedstein.runs.forgetting import find_client, forget, open_source
from fedstein.runs.jax_setup import start_jax


def forget_client(path: Path, wanted: str, out: Path, quiet: bool) -> None:
    """Remove a client from a finished run and print the scores before and after.

    Args:
        path: The folder of the finished run. It is not changed.
        wanted: The name or the id of the client to remove.
        out: The folder for the new run.
        quiet: Whether to print only notes and errors.

    Raises:
        InputError: If the client cannot be removed from this run.
    """
    client = find_client(path, wanted)
    folder, config = open_source(path, client, out)
    start_jax(config)
    shown = 0.0

    def on_block(steps: int, to_go: float) -> None:
        nonlocal shown
        now = time.monotonic()
        if not quiet and (to_go <= TOLERANCE or now - shown > 1):
            shown = now
            say(f"settling: step {steps}, remaining distance {to_go:.3f} posterior sds, tolerance {TOLERANCE}")

    def note(text: str) -> None:
        print(f"fedstein: note: {text}", file=sys.stderr)

    summary = forget(folder, config, client, out, note, on_block)
    if quiet:
        return
    for metric, after in summary["final"].items():
        if after is not None:
            say(f"{metric}: {number((summary['before'] or {}).get(metric))} before, {number(after)} after")
    called = "" if wanted == str(client) else f" ({wanted})"
    say(f"client {client}{called} is forgotten; {path} is unchanged; the run without the client: {out}")
