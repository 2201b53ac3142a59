"""The fixture of the runs over the loopback grid. What tests import is in ``flower_runs``.

A module called ``conftest`` is whichever folder's was imported first, so tests must not import from it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from flower_runs import CLIENTS, Fleet
from loopback import LoopGrid


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    made = Fleet(LoopGrid({}), tmp_path / "nodes")
    made.grid.nodes.update({100 + client: made.node(client) for client in range(CLIENTS)})
    return made
