"""Running jobs: each a process of its own with its own run folder, several side by side, resumable at any time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import tomli_w

from fedstein.errors import FedsteinError
from fedstein.files import disk_errors, write_bytes
from fedstein.machine import cores

POLL = 0.3  # seconds
LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # these variables set NumPy's threads


class Job(Protocol):
    """One run of several."""

    @property
    def name(self) -> str:
        """The name of the job's folder."""
        ...

    @property
    def rounds(self) -> int: ...

    @property
    def weight(self) -> float:
        """The approximate amount of work, from which the remaining time is estimated."""
        ...

    def config(self, threads: int) -> dict[str, Any]:
        """The raw config, for a process with that many threads."""
        ...


AnyJob = TypeVar("AnyJob", bound=Job)
Command = Callable[[Any, Path, int], list[str]]  # job, its folder, threads -> the command to start


def run_or_resume(job: Job, folder: Path, threads: int) -> list[str]:
    """``fedstein run`` for a job, or ``fedstein resume`` if it has begun."""
    if (folder / "config.toml").exists():
        arguments = ["resume", str(folder)]
    else:
        if folder.exists():  # left over from a start that was killed before the run began; it has no results
            shutil.rmtree(folder)
        config = folder.with_name(f"{folder.name}.toml")
        write_bytes(config, tomli_w.dumps(job.config(threads)).encode())
        arguments = ["run", str(config), "--out", str(folder)]
    return [sys.executable, "-m", "fedstein", *arguments, "--quiet"]


class Working:
    """A job whose process is running."""

    def __init__(self, job: Job, folder: Path, command: Sequence[str], threads: int):
        self.job, self.folder = job, folder
        # If every process used all cores, they would slow each other down.
        environment = {**dict.fromkeys(LIBRARIES, str(threads)), **os.environ}
        self.log = folder.with_name(f"{folder.name}.log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                list(command), stdout=subprocess.DEVNULL, stderr=log, env=environment, start_new_session=True
            )

    def done(self) -> bool:
        """Whether the job has finished. The error of a failed job has the last line that the job printed."""
        if self.process.poll() is None:
            return False
        if not is_finished(self.folder):
            said = self.log.read_text(errors="replace").strip().splitlines()
            raise FedsteinError(f"the run {self.job.name} failed: {said[-1] if said else self.process.returncode}")
        self.log.unlink(missing_ok=True)
        return True

    def stop(self) -> None:
        """Ask the process to write a checkpoint and end; kill it if it does not."""
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def run_jobs(
    jobs: Sequence[AnyJob],
    place: Path,
    workers: int,
    on_progress: Callable[[float, str], None],
    command: Command = run_or_resume,
    on_failure: Callable[[AnyJob, str], None] | None = None,
) -> dict[AnyJob, Path]:
    """Run the jobs that are not finished yet, each in a folder of its own in ``place``.

    Args:
        jobs: The runs.
        place: The folder for their folders.
        workers: The number of runs at once.
        on_progress: A function that is called with the share of the work that is done and the names of the current
            runs.
        command: Makes the command that is started for a job.
        on_failure: A function that is called with a job that failed and its error message; the other jobs continue.
            Without it, the first failure ends all jobs.

    Returns:
        The folder of every job.

    Raises:
        FedsteinError: A run failed, and there is no ``on_failure``.
    """
    folders = {job: place / job.name for job in jobs}
    with disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    waiting = [job for job in jobs if not is_finished(folders[job])]
    threads = max(1, cores() // workers)
    whole = sum(job.weight for job in jobs)
    working: list[Working] = []
    with stop_at_once():
        try:
            while waiting or working:
                while waiting and len(working) < workers:
                    job = waiting.pop(0)
                    working.append(Working(job, folders[job], command(job, folders[job], threads), threads))
                time.sleep(POLL)
                working = [entry for entry in working if not ended(entry, on_failure)]
                left = sum(job.weight for job in waiting)
                left += sum(e.job.weight * (1 - rounds_done(e.folder) / e.job.rounds) for e in working)
                # A run still writes files after its last round, so its end is reported when all files are written.
                on_progress(min(1 - left / whole, 0.99), ", ".join(entry.job.name for entry in working))
        finally:
            for entry in working:
                entry.stop()
    on_progress(1.0, "")
    return folders


def ended(entry: Working, on_failure: Callable[[Any, str], None] | None) -> bool:
    """Whether a job has ended, successfully or not. A failure goes to ``on_failure`` if there is one."""
    try:
        return entry.done()
    except FedsteinError as error:
        if on_failure is None:
            raise
        on_failure(entry.job, str(error))
        return True


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM raise KeyboardInterrupt, even if the shell has told its children to ignore Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_finished(folder: Path) -> bool:
    return (folder / "summary.json").is_file()


def rounds_done(folder: Path) -> int:
    try:
        return (folder / "rounds.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
