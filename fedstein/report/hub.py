"""The runs below a folder, kept up to date in the background, with a number that grows whenever one of them changes."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from fedstein.report.follow import FINISHED, FollowedRun, walk_runs
from fedstein.report.views.build import run_list, views_of
from fedstein.report.views.details import details
from fedstein.runs.particle_track import FILE as TRACK

POLL, SCAN = 0.08, 1.0  # seconds between looks at unfinished runs, and between searches of the folder


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
                    if run.read() or search:
                        self._note(name, run)
        if search:
            self._scanned, self.ready = time.monotonic(), True
        return self.version != before

    def _search(self) -> None:
        found = dict(walk_runs(self.root))
        for name, path in found.items():
            if name not in self.runs:
                run = FollowedRun(path, name)
                with self._lock:
                    self.runs[name] = run
                    self._note(name, run)
        for name in self.runs.keys() - found.keys():
            with self._lock:
                for part in (self.runs, self._described, self._changed, self._details):
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
            return {"version": self.version, "ready": self.ready, "names": sorted(self.runs), "runs": changed}

    def views(self, names: list[str]) -> dict[str, Any]:
        """The views of some runs; names that are not known are left out."""
        with self._lock:
            chosen = [self.runs[name] for name in names if name in self.runs]
            return {**views_of(chosen), "version": self.version}

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
