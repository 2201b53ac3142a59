"""The log ``events.jsonl``: one line for each event, such as a client that joined, a missing reply or a repetition.

While the server waits for replies, ``asking.json`` says which clients it has asked, for what and since when. The page
of ``fedstein ui`` shows it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedstein.files import plain

Say = Callable[[str], None]
ASKING = "asking.json"
SELDOM = 0.25  # seconds between two writes of asking.json within one request


class Events:
    """A log of a run. Lines are printed at once, and written to a file as soon as there is a run folder."""

    def __init__(self, say: Say = lambda line: print(line, flush=True)):
        self.say = say
        self.path: Path | None = None
        self.early: list[str] = []
        self.at = 0  # the current round; 0 before the first
        self._asked: dict[str, Any] = {}  # the content of asking.json
        self._written = -1e9

    def open(self, path: Path) -> None:
        """Write all lines to this file from now on, and also the earlier ones."""
        self.path = path
        early, self.early = self.early, []
        for line in early:
            self._append(line)

    def note(self, event: str, *, number: int = 0, client: int | None = None, name: str = "", **more: Any) -> None:
        """Log something that happened.

        Args:
            event: What happened, in a word or two.
            number: The round; by default the current one, 0 before the first.
            client: The client that the event concerns, if there is one.
            name: The client's or the node's name.
            more: Further entries of the line, such as a reason.
        """
        number = number or self.at
        entry = {"event": event, "round": number, "client": client, "name": name, **more, "time": time.time()}
        self._append(json.dumps(plain(entry)))
        who = f" {name or f'client {client}'}" if name or client is not None else ""
        rest = "".join(f", {key} {text}" for key, text in more.items())
        self.say(f"fedstein: round {number}: {event}{who}{rest}" if number else f"fedstein: {event}{who}{rest}")

    def asking(self, kind: str, number: int, clients: Iterable[int], begin: bool = False) -> None:
        """Write which clients are asked now. Only people who watch the run read this, so a failed write is ignored.

        Args:
            kind: What they are asked for, such as ``"ask"`` (for a report) or ``"train"``.
            number: The round.
            clients: The clients whose answers are awaited; empty when the request is over.
            begin: Whether this is a new request.
        """
        self.at = number or self.at
        if self.path is None:
            return
        waiting, now, file = sorted(clients), time.time(), self.path.with_name(ASKING)
        since = now if begin else self._asked.get("since", now)
        entry = {"round": number, "kind": kind, "clients": waiting, "since": since}
        if entry == self._asked or (waiting and not begin and now - self._written < SELDOM):
            return
        self._asked, self._written = entry, now
        with suppress(OSError):
            if not waiting:
                file.unlink(missing_ok=True)
                return
            beside = file.with_name(f".{ASKING}.{os.getpid()}.tmp")
            beside.write_text(json.dumps(plain(entry)), "utf-8")
            os.replace(beside, file)

    def _append(self, line: str) -> None:
        if self.path is None:
            self.early.append(line)
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
