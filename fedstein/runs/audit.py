"""The spent privacy budgets of clients, from the ledgers of a run folder, of a node, or of a folder of ledgers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from fedstein.errors import InputError
from fedstein.privacy.accounting import cross_check, epsilon_of, spent_mu
from fedstein.privacy.ledger import RECORD, parse

PLACES = (".", "ledger", "privacy")  # a folder of ledgers, a run folder, a node's state-dir


def find_ledgers(folder: Path) -> list[Path]:
    """The ledger files of a folder.

    Args:
        folder: A run folder, a node's state-dir, or a folder that ``privacy.ledger`` names.

    Returns:
        The files, in the order of the clients' numbers.

    Raises:
        InputError: The folder has no ledger.
    """
    found = [path for place in PLACES for path in (folder / place).glob("*.jsonl") if is_ledger(path)]
    if not found:
        raise InputError(
            f"{folder} has no ledger: expected the folder of a private run in process, the state-dir of a node that "
            "has answered one, or the folder that privacy.ledger names"
        )
    return sorted(found, key=lambda path: (len(path.name), path.name))


def is_ledger(path: Path) -> bool:
    """Tell whether a file has the name of a ledger."""
    return path.name == "ledger.jsonl" or path.name.startswith("client-")


def audit(folder: Path) -> list[dict[str, Any]]:
    """Compute what each client has spent, by kind of release.

    Args:
        folder: As in ``find_ledgers``.

    Returns:
        For each ledger its file, what it protects (every record, or the whole client), its budget, releases by kind and
        by run, and the epsilon of all of them by three accountants: the closed form, which the ledger uses, and the two
        of dp-accounting.

    Raises:
        InputError: There is no ledger, one is damaged, or dp-accounting is not installed.
    """
    lines = []
    for path in find_ledgers(folder):
        content = path.read_bytes()
        head, releases = parse(content[: content.rfind(b"\n") + 1], path)
        delta, multipliers = float(head["delta"]), [entry.multiplier for entry in releases]
        names = ("gradient", *sorted({entry.what for entry in releases} - {"gradient"} or {"moments"}))
        kinds = {name: [e.multiplier for e in releases if e.what == name] for name in names}
        checked = cross_check(multipliers, delta)._asdict() if multipliers else {}
        lines.append(
            {
                "ledger": str(path.relative_to(folder)),
                "clients": sorted({entry.client for entry in releases}),
                "runs": dict(Counter(entry.run for entry in releases)),
                "protects": str(head.get("protects", RECORD)),
                "budget": {"epsilon": float(head["epsilon"]), "delta": delta},
                "releases": {name: len(found) for name, found in kinds.items()},
                "epsilon_of": {name: epsilon_of(spent_mu(found), delta) for name, found in kinds.items()},
                "spent": {"epsilon": checked.get("gaussian", 0.0), "delta": delta},
                "by_accountant": checked,
            }
        )
    return lines
