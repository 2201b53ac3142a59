"""Following run folders: each reading starts where the last one ended, and damage is reported instead of raised."""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedstein.errors import InputError
from fedstein.federation.records import RoundRecord
from fedstein.report.round_table import RoundTable

RUNNING, FINISHED, STOPPED, DAMAGED = "running", "finished", "stopped", "damaged"
QUIET = 5.0  # seconds without a new round after which a run that nobody holds counts as stopped
DEEP = 4  # folders below the given one in which runs are looked for
LISTED = 20  # problems of a run that are listed
EVENTS = 20_000  # events of a run that are kept
MOST_CLIENTS = 100_000  # an id beyond it is damage
SKIPPED = {"checkpoint", "report", "figures", "node_modules", "__pycache__"}
Stamp = tuple[int, int, int]


class TailedFile:
    """The complete lines of a file that grows, each handed out once. A replaced or shortened file starts anew."""

    def __init__(self, path: Path):
        self.path = path
        self.offset, self.inode, self.number = 0, -1, 0
        self.half = False  # whether the file ends within a line

    def read(self) -> tuple[bool, list[tuple[int, bytes]]]:
        """Return whether the file began anew, and the new lines with their numbers. A half-written line waits."""
        try:
            with self.path.open("rb") as file:
                stat = os.fstat(file.fileno())
                again = stat.st_ino != self.inode or stat.st_size < self.offset
                if again:
                    self.offset, self.inode, self.number = 0, stat.st_ino, 0
                if stat.st_size == self.offset:
                    self.half = False
                    return again, []
                file.seek(self.offset)
                content = file.read()
        except OSError:
            return False, []
        whole = content[: content.rfind(b"\n") + 1]
        self.half = len(whole) < len(content)
        self.offset += len(whole)
        lines = whole.split(b"\n")[:-1]
        first, self.number = self.number + 1, self.number + len(lines)
        return again, list(enumerate(lines, start=first))


class JsonFile:
    """A small file that is written whole: read again when it has changed."""

    def __init__(self, path: Path, parse: Callable[[str], Any], expected: type):
        self.path, self.parse, self.expected = path, parse, expected
        self.stamp: Stamp | None = None
        self.value: Any = None
        self.problem = ""

    def read(self) -> bool:
        """Read the file if it has changed, and return whether it has."""
        try:
            stat = self.path.stat()
            stamp: Stamp | None = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        except OSError:
            stamp = None
        if stamp == self.stamp:
            return False
        self.stamp, self.value, self.problem = stamp, None, ""
        if stamp is not None:
            try:
                value = self.parse(self.path.read_text("utf-8"))
                if not isinstance(value, self.expected):
                    raise ValueError(f"expected {self.expected.__name__}")
                self.value = value
            except (OSError, ValueError) as error:
                self.problem = f"{self.path.name} is damaged ({str(error)[:80]}); what it holds is not shown."
        return True


def parse_json(text: str) -> Any:
    """Parse JSON with non-finite numbers as None."""
    return json.loads(text, parse_constant=lambda _: None)


class FollowedRun:
    """A run folder that may still grow. ``read`` brings it up to date; what is damaged is in ``problems``.

    Attributes:
        path: The run folder.
        id: Its name below the folder that was searched.
        table: The rounds so far, as columns.
        events: The entries of ``events.jsonl``.
    """

    def __init__(self, path: Path, id: str = ""):
        self.path, self.id = path, id or path.resolve().name
        self.table, self.events = RoundTable(), list[dict[str, Any]]()
        self.happened = 0  # lines of events.jsonl that were read, those no longer kept included
        self._rounds, self._log = TailedFile(path / "rounds.jsonl"), TailedFile(path / "events.jsonl")
        self._broken: list[str] = []
        self._last = 0.0
        self.files = {
            "config.toml": JsonFile(path / "config.toml", tomllib.loads, dict),
            **{
                name: JsonFile(path / name, parse_json, kind)
                for name, kind in (
                    ("summary.json", dict),
                    ("clients.json", list),
                    ("data.json", dict),
                    ("environment.json", dict),
                    ("clients-evaluation.json", dict),
                    ("reference.json", dict),
                    ("asking.json", dict),
                )
            },
        }
        self.read()

    def read(self) -> bool:
        """Bring everything up to date.

        Returns:
            Whether anything has changed.
        """
        changed = sum(file.read() for file in self.files.values()) > 0
        again, lines = self._rounds.read()
        if again:
            changed, self.table, self._broken = True, RoundTable(), []
        for number, line in lines:
            self._append(number, line)
        began, entries = self._log.read()
        if began:
            self.events, self.happened = [], 0
        for _, line in entries:
            self._note(line)
        self.happened += len(entries)
        del self.events[:-EVENTS]
        if lines or entries or changed:
            self._last = max(self._last, self._modified())
        return changed or bool(lines) or bool(entries) or began

    def _append(self, number: int, line: bytes) -> None:
        text = line.decode("utf-8", errors="replace").strip("\0 \r")
        if not text:
            return
        try:
            record = RoundRecord.from_dict(parse_json(text))
            if len(self.table) and record.round <= self.table.last_round:
                raise InputError(f"round {record.round} comes after round {self.table.last_round}")
            if max([0, *record.selected, *record.failed, *(record.candidate_ids or ())]) >= MOST_CLIENTS:
                raise InputError(f"it names a client beyond {MOST_CLIENTS:,}")
        except (ValueError, TypeError, InputError) as error:
            self._broken.append(f"Line {number} of rounds.jsonl is damaged and left out ({str(error)[:80]}).")
            return
        self.table.append(record)

    def _note(self, line: bytes) -> None:
        try:
            entry = parse_json(line.decode("utf-8", errors="replace").strip("\0 \r"))
        except ValueError:
            return
        if isinstance(entry, dict) and isinstance(entry.get("event"), str):
            self.events.append(entry)

    def _modified(self) -> float:
        """When the run last wrote something."""
        times = [0.0]
        for name in ("rounds.jsonl", "events.jsonl", "asking.json"):
            with suppress(OSError):
                times.append((self.path / name).stat().st_mtime)
        return max(times)

    @property
    def config(self) -> dict[str, Any]:
        """The config of the run; empty if it is damaged."""
        return self.files["config.toml"].value or {}

    @property
    def seed(self) -> int:
        """The seed of the run."""
        seed = self.config.get("seed", 0)
        return seed if type(seed) is int else 0

    @property
    def planned(self) -> int | None:
        """The number of rounds that the run is to have."""
        rounds = self.config.get("rounds")
        return rounds if type(rounds) is int else None

    @property
    def summary(self) -> dict[str, Any] | None:
        """``summary.json``, or None unless it belongs to the last round."""
        found = self.files["summary.json"].value
        if found is None or not len(self.table) or found.get("rounds") != self.table.last_round:
            return None
        if not isinstance(found.get("final"), dict):
            return None
        return found if found.get("status", "finished") == "finished" else None

    def section(self, name: str) -> dict[str, Any]:
        """A section of the config; empty if there is none."""
        found = self.config.get(name)
        return found if isinstance(found, dict) else {}

    @property
    def names(self) -> list[str]:
        """The names of the clients by id: those of ``clients.json``, else "client 0", ..."""
        count = self.table.clients
        known = self.section("partition").get("clients")
        found = self.files["clients.json"].value or []
        count = max(count, known if type(known) is int else 0, len(found))
        names = [f"client {i}" for i in range(count)]
        for i, entry in enumerate(found):
            name = entry.get("name") if isinstance(entry, dict) else None
            if isinstance(name, str) and name and name != str(i):
                names[i] = name
        return names

    @property
    def asked(self) -> dict[str, Any]:
        """The clients that are asked now, for what and since when, from ``asking.json``; empty if none are."""
        found = self.files["asking.json"].value or {}
        sound = isinstance(found.get("clients"), list) and isinstance(found.get("kind"), str)
        return found if sound and isinstance(found.get("since"), (int, float)) else {}

    @property
    def problems(self) -> list[str]:
        """Sentences about what cannot be shown, because a file is damaged or missing."""
        found = [file.problem for name, file in self.files.items() if file.problem and name != "asking.json"]
        if not self.config and not self.files["config.toml"].problem:
            found.append("config.toml is missing; the settings of the run are unknown.")
        if self._rounds.inode == -1:
            found.append("rounds.jsonl is missing; there are no rounds to show.")
        summary, clients = self.files["summary.json"].value, self.files["clients.json"].value
        if summary is not None and not isinstance(summary.get("final"), dict):
            found.append("summary.json is damaged (it has no metrics of the last round); what it holds is not shown.")
        if not all(isinstance(entry, dict) for entry in clients or ()):
            found.append("clients.json is damaged (expected a list of clients); clients are shown by their numbers.")
        more = len(self._broken) - LISTED
        return found + self._broken[:LISTED] + ([f"{more} further lines are damaged."] if more > 0 else [])

    @property
    def remarks(self) -> list[str]:
        """Sentences about what a stopped run has not finished, and how to continue it."""
        if self.state not in (STOPPED, DAMAGED):
            return []
        found = []
        if self._rounds.half:
            found.append("The last line of rounds.jsonl is half written; fedstein resume repeats that round.")
        done = len(self.table) and self.planned is not None and self.table.last_round >= self.planned
        if done and self.files["summary.json"].value is None and not self.files["summary.json"].problem:
            found.append("All rounds are there, but summary.json is missing; fedstein resume writes it again.")
        return found

    @property
    def state(self) -> str:
        """One of running, finished, stopped and damaged."""
        if self.summary is not None:
            return FINISHED
        if is_held(self.path):
            return RUNNING
        if self.problems:
            return DAMAGED
        usual = self.table.usual_seconds or 0.0
        return RUNNING if time.time() - self._modified() < max(QUIET, 3 * usual) else STOPPED


def is_held(folder: Path) -> bool:
    """Return whether a process of this machine holds the lock of a run folder. The lock itself is not touched."""
    try:
        inode = folder.stat().st_ino
        with open("/proc/locks", encoding="ascii") as file:
            return any(f":{inode} " in line and "FLOCK" in line for line in file)
    except (OSError, UnicodeDecodeError):
        return False


def walk_runs(root: Path) -> Iterator[tuple[str, Path]]:
    """Find the run folders in and below a folder, with the name of each below it.

    Args:
        root: The folder to search. It may be a run folder itself, and it need not exist yet.

    Yields:
        Names and paths, sorted by name.
    """
    top = len(root.parts)
    for place, folders, files in os.walk(root):
        here = Path(place)
        if "rounds.jsonl" in files:
            name = here.relative_to(root).as_posix()
            yield (root.resolve().name if name == "." else name), here
            folders.clear()
            continue
        deep = len(here.parts) - top >= DEEP
        folders[:] = [] if deep else sorted(f for f in folders if not f.startswith(".") and f not in SKIPPED)
