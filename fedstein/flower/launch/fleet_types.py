"""Types of a fleet of processes: the files of its link, its nodes, and the errors of a failed start."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fedstein.errors import FedsteinError


class Tls(NamedTuple):
    """The files of an encrypted link."""

    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def of(cls, folder: Path) -> Tls:
        """The files of a folder that ``fedstein deploy certs`` has written."""
        return cls(*((folder / name).resolve() for name in ("ca.crt", "link.crt", "link.key")))


class Node(NamedTuple):
    """The arguments with which a node was started, so that it can be started again."""

    settings: Path
    key: Path | None
    plain: bool
    through: str | None


class EndedEarly(FedsteinError):
    """A program ended before it was ready."""


class PortTaken(EndedEarly):
    """Another program listens on the port that was free a moment ago."""
