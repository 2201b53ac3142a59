"""The command ``fedstein audit``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedstein.console import say
from fedstein.runs.audit import audit

BEFORE, AFTER = ("ledger", "protects", "budget", "spent"), ("PLD", "Renyi", "runs")


def show_audit(folder: Path, as_json: bool) -> None:
    """Print the table of what each client has spent, by kind of release.

    Args:
        folder: A run folder, a node's state-dir, or a folder of ledgers.
        as_json: Whether to print JSON instead of a table.

    Raises:
        InputError: There is no ledger, or one is damaged.
    """
    found = audit(folder)
    if as_json:
        say(json.dumps(found, indent=2))
        return
    kinds = list(dict.fromkeys(kind for line in found for kind in line["releases"]))
    columns = [*BEFORE, *("gradients" if kind == "gradient" else kind for kind in kinds), *AFTER]
    rows = [columns, *(row_of(line, kinds) for line in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    for row in rows:
        first, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join([row[0].ljust(len(first)), *rest]))
    say(
        f"epsilon at delta {found[0]['budget']['delta']:g}, with the number of releases in brackets; spent is exact "
        "for Gaussian noise, PLD and Renyi are dp-accounting's, and Renyi's is an upper bound"
    )


def row_of(line: dict[str, Any], kinds: Sequence[str]) -> list[str]:
    """A line of the table, with a column for each kind of release."""

    def kind(name: str) -> str:
        return f"{line['epsilon_of'].get(name, 0.0):.3f} ({line['releases'].get(name, 0)})"

    checked = line["by_accountant"]
    return [
        line["ledger"],
        line["protects"],
        f"{line['budget']['epsilon']:g}",
        f"{line['spent']['epsilon']:.3f}",
        *map(kind, kinds),
        f"{checked.get('pld', 0.0):.3f}",
        f"{checked.get('rdp', 0.0):.3f}",
        str(len(line["runs"])),
    ]
