"""``fedstein forget``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fedstein.cli import say
from fedstein.cli.running import number
from fedstein.runs.forgetting import forget, open_source
from fedstein.sites.settle import TOLERANCE
from fedstein.start import start_jax


def forget_client(path: Path, client: int, out: Path, quiet: bool) -> None:
    folder, config = open_source(path, client, out)
    start_jax(config)
    shown = 0.0

    def on_block(steps: int, to_go: float) -> None:
        nonlocal shown
        now = time.monotonic()
        if not quiet and (to_go <= TOLERANCE or now - shown > 1):
            shown = now
            say(f"settling: step {steps}, {to_go:.3f} posterior sds to go, {TOLERANCE} is enough")

    def note(text: str) -> None:
        print(f"fedstein: note: {text}", file=sys.stderr)

    summary = forget(folder, config, client, out, note, on_block)
    if quiet:
        return
    for metric, after in summary["final"].items():
        if after is not None:
            say(f"{metric}: {number((summary['before'] or {}).get(metric))} before, {number(after)} after")
    say(f"client {client} is forgotten; {path} is as it was; the run without it: {out}")
