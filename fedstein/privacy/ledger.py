"""The ledger of a client: one line for each release, written to disk before the release is sent.

The ledger belongs to the rows, not to a run: it counts over all runs and refuses releases that would exceed its budget.
A line is appended and synced before a release is returned. A process that is killed before that has sent nothing. If it
is killed afterwards, the budget is spent, and the same release, which has the same id, can be sent again at no further
cost.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fedstein.errors import FedsteinError, InputError
from fedstein.files import folder_lock, sync_folder, write_bytes
from fedstein.privacy.accounting import epsilon_of, mu_of, spent_mu

FORMAT = "fedstein ledger 1"
RECORD = "record"  # what ledgers of earlier versions protect, which have no entry for it
ROUNDING = 1e-9  # the tolerance of mu^2, because the releases of a plan add up to exactly the budget


class BudgetSpent(FedsteinError):
    """A release would exceed the client's budget. Nothing was released."""


class Release(NamedTuple):
    """One line of a ledger."""

    id: str  # digest of everything that determines the release
    what: str  # "gradient", "moments" or "curvature"
    multiplier: float
    run: str
    client: int
    visit: int


class Ledger:
    """The releases from one client's rows. Without a file they are kept in memory."""

    def __init__(self, path: Path | None, epsilon: float, delta: float, *, fixed: bool = False, protects: str = RECORD):
        """
        Args:
            path: The file; None keeps the ledger in memory.
            epsilon: The budget for all runs together. It is used if the file does not exist yet, or if ``fixed`` is
                set.
            delta: The budget's delta.
            fixed: Whether the operator has set ``epsilon``, which then replaces the budget of the file.
            protects: What epsilon is for: every ``"record"``, or the whole ``"client"``.

        Raises:
            InputError: The file is damaged, or counts at another delta, or for another kind of protection.
        """
        self.path, self.epsilon, self.delta, self.fixed, self.protects = path, epsilon, delta, fixed, protects
        self.entries: list[Release] = []
        if path is not None:
            self._read()

    def charge(self, releases: Sequence[Release]) -> None:
        """Record releases. They must not be sent before this returns.

        Args:
            releases: Releases that are sent together. Those that are in the ledger already cost nothing.

        Raises:
            BudgetSpent: They would exceed the budget; nothing was written.
            InputError: The file is damaged, or cannot be written.
        """
        with self._alone():
            known = {entry.id for entry in self.entries}
            fresh = [release for release in releases if release.id not in known]
            if not fresh:
                return
            total = spent_mu([entry.multiplier for entry in (*self.entries, *fresh)])
            if total**2 > mu_of(self.epsilon, self.delta) ** 2 * (1 + ROUNDING):
                raise BudgetSpent(
                    f"{' and '.join(release.what for release in fresh)} of visit {fresh[0].visit + 1} would bring what "
                    f"this client has spent from epsilon {self.spent:.3g} to {epsilon_of(total, self.delta):.3g} at "
                    f"delta {self.delta:g}, and its budget is {self.epsilon:g}; nothing was released"
                )
            self._append(fresh)
            self.entries += fresh

    @property
    def mu(self) -> float:
        """The mu of all releases together."""
        return spent_mu([entry.multiplier for entry in self.entries])

    @property
    def spent(self) -> float:
        """The epsilon of all releases together, at the budget's delta."""
        return epsilon_of(self.mu, self.delta)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the ledger for this process, and read what other processes have written in the meantime."""
        if self.path is None:
            yield
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(self.path.parent, wait=True):
            self._read()
            yield

    def _append(self, fresh: Sequence[Release]) -> None:
        if self.path is None:
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        lines = "".join(json.dumps({**release._asdict(), "time": now}) + "\n" for release in fresh)
        if not self.path.exists():
            head = {
                "format": FORMAT,
                "epsilon": self.epsilon,
                "delta": self.delta,
                "protects": self.protects,
                "time": now,
            }
            write_bytes(self.path, (json.dumps(head) + "\n").encode())
        try:
            with self.path.open("ab") as file:
                file.write(lines.encode())
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self.path.parent)
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written ({os.strerror(error.errno or 0).lower()}), so nothing was released"
            ) from error

    def _read(self) -> None:
        """Read the file. An incomplete last line is removed: the process was killed before it sent this release."""
        assert self.path is not None
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            write_bytes(self.path, whole)
        head, releases = parse(whole, self.path)
        self.entries = releases
        if not self.fixed:
            self.epsilon = float(head["epsilon"])
        if head["delta"] != self.delta:
            raise InputError(
                f"{self.path} counts at delta {head['delta']:g}, the run at {self.delta:g}: what was spent cannot be "
                "added up; use the ledger's delta"
            )
        if (counted := head.get("protects", RECORD)) != self.protects:
            raise InputError(
                f"{self.path} counts what was spent on privacy.kind = {counted!r}, the run has {self.protects!r}: the "
                "two cannot be added up; use the ledger's kind"
            )


def parse(content: bytes, path: Path) -> tuple[dict[str, Any], list[Release]]:
    """The head and the releases of a ledger.

    Args:
        content: The file's whole lines.
        path: The file, for messages.

    Returns:
        The head, with the budget, and the releases.

    Raises:
        InputError: It is no ledger, or a line is damaged.
    """
    try:
        head, *lines = [json.loads(line) for line in content.splitlines()]
        if head["format"] != FORMAT or not 0 < float(head["delta"]) < 1 or not float(head["epsilon"]) > 0:
            raise ValueError(f"expected {FORMAT!r}")
        releases = [Release(**{name: line[name] for name in Release._fields}) for line in lines]
        if not all(math.isfinite(entry.multiplier) and entry.multiplier > 0 for entry in releases):
            raise ValueError("a multiplier is not a positive number")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is damaged: it is not a privacy ledger ({error}); restore it: without it nothing may be released"
        ) from None
    return head, releases
