"""The one place of the digests that reaches into the package: a run over the loopback grid of tests/flower.

When modules move, this function is what must be adapted, and nothing else here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def run_over_flower(raw: dict[str, Any], out: Path, states: Path) -> None:
    """Play the config over real serialised messages to one node a client, and leave a run folder at ``out``."""
    beside = str(Path(__file__).resolve().parent.parent / "flower")
    if beside not in sys.path:
        sys.path.append(beside)
    from loopback import LoopGrid

    from fedstein.flower.server.events import Events
    from fedstein.flower.server.run import run_over
    from fedstein.flower.server.transport import GridTransport

    nodes = {
        100 + client: {"partition-id": client, "state-dir": str(states / f"node-{client}")}
        for client in range(raw["partition"]["clients"])
    }
    run_over(GridTransport(LoopGrid(nodes)), raw, out, Events(lambda line: None), lambda record: None)
