"""``flwr-clientapp`` without the imports that only a SuperNode needs. This module is run as a program.

Flower 1.41 starts this program again for every message, and it imports the SuperNode's database and web server. These
imports take more than half of its start. On one machine with several nodes, they take most of a round.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType


def main() -> None:
    """Run Flower's own ``flwr-clientapp`` without the imports that it does not need."""
    import flwr.supernode

    package = ModuleType("flwr.supernode.cli")  # an empty stand-in for a package that is slow to import
    package.__path__ = [str(Path(flwr.supernode.__file__).parent / "cli")]
    sys.modules[package.__name__] = package
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

    flwr_clientapp()


if __name__ == "__main__":
    main()
