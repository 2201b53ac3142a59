"""The runs below a folder, kept up to date in the background, with a number that grows whenever one of them changes."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any

from fedstein.report.follow import DAMAGED, FINISHED, FollowedRun, walk_runs
from fedstein.report.views.build import run_list, views_of
from fedstein.report.views.details import details
from fedstein.runs.particle_track import FILE as TRACK

POLL, SCAN = 0.08, 1.0  # seconds between looks at unfinished runs, and between searches of the folder

# The entry in the list of a run that cannot be read.
NOTHING: dict[str, Any] = {
    "seed": None,
    "state": DAMAGED,
    "round": 0,
    "rounds": None,
    "about": "",
    "engine": None,
    "spark": {"metric": None, "values": [], "last": None},
    "happened": [],
}


class RunHub:
    """Follows every run below a folder. Reading happens in threads; one lock keeps readers and views apart."""

    def __init__(self, root: Path):
        self.root = root
        self.runs: dict[str, FollowedRun] = {}
        self.version = 0
        self.ready = False  # whether the folder has been searched once
        self._changed: dict[str, int] = {}
        self._described: dict[str, dict[str, Any]] = {}
        self._lock, self._slow = threading.RLock(), threading.Lock()
        self._details: dict[str, tuple[Any, dict[str, Any]]] = {}
        self._unreadable: dict[str, str] = {}  # runs that raised, and what
        self._scanned = 0.0
        self._news = asyncio.Condition()

    async def follow(self) -> None:
        """Read for ever, and wake those who wait for news. It is cancelled with the server."""
        while True:
            if await asyncio.to_thread(self.read):
                async with self._news:
                    self._news.notify_all()
            await asyncio.sleep(POLL)

    async def wait(self, version: int, seconds: float) -> None:
        """Wait until the version is greater than the given one, or until the time is over."""
        async with self._news:
            try:
                await asyncio.wait_for(self._news.wait_for(lambda: self.version > version), seconds)
            except TimeoutError:
                return

    def read(self) -> bool:
        """Read what is new: unfinished runs each time, the folder and finished runs once a second.

        Returns:
            Whether anything has changed.
        """
        search = time.monotonic() - self._scanned >= SCAN or not self.ready
        before = self.version
        if search:
            self._search()
        for name, run in list(self.runs.items()):
            if search or self._described.get(name, {}).get("state") != FINISHED:
                with self._lock:
                    self._read(name, run.path, search)
        if search:
            self._scanned, self.ready = time.monotonic(), True
        return self.version != before

    def _read(self, name: str, path: Path, always: bool = False) -> None:
        """Bring a run up to date. One that cannot be read at all must not keep the others from being followed."""
        try:
            if name not in self.runs:
                self.runs[name], always = FollowedRun(path, name), True
            if self.runs[name].read() or always:
                self._note(name, self.runs[name])
        except Exception as error:
            logging.getLogger("fedstein").exception("the run %s cannot be read", name)
            self._forget(name)
            self._unreadable[name] = f"This run cannot be read ({type(error).__name__}: {error})."
            self._described[name] = {**NOTHING, "id": name, "problems": [self._unreadable[name]]}
            self._changed[name] = self.version

    def _search(self) -> None:
        found = dict(walk_runs(self.root))
        for name, path in found.items():
            if name not in self.runs and name not in self._unreadable:
                with self._lock:
                    self._read(name, path)
        for name in self._described.keys() - found.keys():
            with self._lock:
                self._forget(name)

    def _forget(self, name: str) -> None:
        for part in (self.runs, self._described, self._changed, self._details, self._unreadable):
            part.pop(name, None)
        self.version += 1

    def _note(self, name: str, run: FollowedRun) -> None:
        described = run_list([run])[0]
        if described != self._described.get(name):
            self._described[name] = described
            self.version += 1
            self._changed[name] = self.version

    def listed(self, since: int = 0) -> dict[str, Any]:
        """The list of runs: all names, and what is to be said of those that changed after a version."""
        with self._lock:
            changed = [self._described[name] for name, version in self._changed.items() if version > since]
            return {"version": self.version, "ready": self.ready, "names": sorted(self._described), "runs": changed}

    def views(self, names: list[str]) -> dict[str, Any]:
        """The views of some runs; names that are not known are left out."""
        with self._lock:
            chosen = [self.runs[name] for name in names if name in self.runs]
            found = views_of(chosen)
            found["notes"] += [f"{name}: {self._unreadable[name]}" for name in names if name in self._unreadable]
            return {**found, "version": self.version}

    def details(self, name: str) -> dict[str, Any] | None:
        """The views of a run's posterior, computed again when the run has gone on; None if there is no such run."""
        run = self.runs.get(name)
        if run is None:
            return None
        with self._slow:
            stamp = (run.files["summary.json"].stamp, run.files["reference.json"].stamp, _size(run.path / TRACK))
            kept = self._details.get(name)
            if kept is None or kept[0] != stamp:
                kept = (stamp, details(run))
                self._details[name] = kept
            return kept[1]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
