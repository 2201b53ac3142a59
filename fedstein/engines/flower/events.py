"""What happened on the way: who joined, who was missing, what was sent again. One line each in ``events.jsonl``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedstein.runs.files import plain

Say = Callable[[str], None]


class Events:
    """Lines are printed at once; they go to a file as soon as there is a run folder."""

    def __init__(self, say: Say = lambda line: print(line, flush=True)):
        self.say = say
        self.path: Path | None = None
        self.early: list[str] = []

    def open(self, path: Path) -> None:
        self.path = path
        early, self.early = self.early, []
        for line in early:
            self._append(line)

    def note(self, event: str, *, number: int = 0, client: int | None = None, name: str = "", **more: Any) -> None:
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
