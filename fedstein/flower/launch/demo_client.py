"""``flwr-clientapp`` without the imports that only a SuperNode needs. This module is run as a program.

Flower 1.41 starts this program anew for every message, and imports the SuperNode's database and web server with it:
more than half of its start. On one machine with several nodes that is most of a round.
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
