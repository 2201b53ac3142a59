"""What happened on the way: who joined, who was missing, what was sent again. One line each in ``events.jsonl``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedstein.files import plain

Say = Callable[[str], None]


class Events:
    """A log of a run. Lines are printed at once, and written to a file as soon as there is a run folder."""

    def __init__(self, say: Say = lambda line: print(line, flush=True)):
        self.say = say
        self.path: Path | None = None
        self.early: list[str] = []

    def open(self, path: Path) -> None:
        """Write all lines to this file from now on, those of before too."""
        self.path = path
        early, self.early = self.early, []
        for line in early:
            self._append(line)

    def note(self, event: str, *, number: int = 0, client: int | None = None, name: str = "", **more: Any) -> None:
        """Log something that happened.

        Args:
            event: What happened, in a word or two.
            number: The round; 0 outside of rounds.
            client: The client that it happened to, where there is one.
            name: The client's or the node's name.
            more: Whatever else the line says, such as a reason.
        """
        entry = {"event": event, "round": number, "client": client, "name": name, **more, "time": time.time()}
        self._append(json.dumps(plain(entry)))
        who = f" {name or f'client {client}'}" if name or client is not None else ""
        rest = "".join(f", {key} {text}" for key, text in more.items())
        self.say(f"fedstein: round {number}: {event}{who}{rest}" if number else f"fedstein: {event}{who}{rest}")

    def _append(self, line: str) -> None:
        if self.path is None:
            self.early.append(line)
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
