"""Programs in process groups of their own, each with a log. No program outlives the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fedstein.flower.launch import watchdog

GRACE = 3.0  # seconds between asking a program to stop and killing it


class Program:
    """One running program: its process group, and what it has written to its log since this start."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, start: int) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.start = start

    @property
    def group(self) -> int:
        return self.process.pid

    def running(self) -> bool:
        return self.process.poll() is None

    def output(self) -> str:
        """Return what the program has written to its log since it was last started."""
        with self.log.open("rb") as file:
            file.seek(self.start)
            return file.read().decode(errors="replace")

    def commands(self) -> dict[int, str]:
        """The command line of every process of the group, by process id (only on Linux; empty on other systems)."""
        found = {}
        for process in watchdog.members([self.group]):
            with suppress(OSError):
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                found[process] = " ".join(word.decode(errors="replace") for word in words if word)
        return found


class Supervisor:
    """Starts programs, and ends them together with all processes that they started.

    A watchdog ends them if this process itself is killed.
    """

    def __init__(self) -> None:
        self._programs: list[Program] = []
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", str(Path(watchdog.__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def start(self, name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str]) -> Program:
        """Start a program in a session of its own.

        Args:
            name: The name of the program.
            command: Its path and arguments.
            log: The file that its output is appended to.
            environment: Its environment variables.

        Returns:
            The running program.
        """
        with log.open("ab") as file:
            start = file.tell()
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
            self._tell(f"+{process.pid}")
        program = Program(name, process, log, start)
        self._programs.append(program)
        return program

    def stop(self, *programs: Program, grace: float = GRACE) -> None:
        """End programs and all processes that they started.

        Args:
            programs: The programs.
            grace: Seconds between asking them to stop and killing them; 0 kills them at once.
        """
        groups = [program.group for program in programs]
        watchdog.end_groups(groups, grace)
        for program in programs:
            with suppress(subprocess.TimeoutExpired):
                program.process.wait(1.0)
            self._tell(f"-{program.group}")
            if program in self._programs:
                self._programs.remove(program)

    def kill(self, process: int) -> None:
        """``kill -9`` of one process."""
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    def close(self) -> None:
        """End all programs that still run, then the watchdog."""
        try:
            self.stop(*list(self._programs))
        finally:
            assert self._watchdog.stdin is not None
            with suppress(BrokenPipeError):
                self._watchdog.stdin.close()
            self._watchdog.wait(2 * GRACE + 10)

    def _tell(self, line: str) -> None:
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.write(line.encode() + b"\n")
        self._watchdog.stdin.flush()
