"""The process that computes for a resident node, and the class by which the node controls it.

``Worker`` starts this module as a program and talks to it over a socket. The process keeps JAX, the rows and the
compiled programs in memory from one request to the next. It is a separate process, so that a model that crashes, hangs
or takes all memory ends only one request, with a reason, and not the node.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fedstein.errors import FedsteinError
from fedstein.flower.messages import Envelope

PR_SET_PDEATHSIG = 1  # an option of Linux's prctl
LOOK_EVERY = 0.25  # seconds between two checks of a process that computes


class WorkerFailed(FedsteinError):
    """The process did not answer: it ended, took too long, or took too much memory. The text says which."""


class Worker:
    """A process that answers requests one after another."""

    def __init__(self, memory: float = 0.0) -> None:
        """
        Args:
            memory: The most memory that the process may use, in GiB; 0 for no limit.
        """
        self.memory = memory
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        with theirs:
            command = [sys.executable, "-P", __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ask(self, request: Envelope, node_config: Mapping[str, Any], seconds: float) -> Envelope:
        """Have the process answer a request.

        Args:
            request: The request of the server.
            node_config: The node config of the SuperNode.
            seconds: How long the process may take.

        Returns:
            The reply.

        Raises:
            WorkerFailed: There is no reply. The process has then ended.
        """
        end = time.monotonic() + seconds
        try:
            self._connection.send((request, dict(node_config)))
            while not self._connection.poll(LOOK_EVERY):
                self._check(end, seconds)
            reply = self._connection.recv()
        except (EOFError, OSError):
            raise WorkerFailed(f"the process that computed the answer {self._ended()}") from None
        if isinstance(reply, str):  # a defect of Fedstein or of the user's model
            raise WorkerFailed(reply)
        return reply

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _check(self, end: float, seconds: float) -> None:
        if not self.running and not self._connection.poll(0):
            raise EOFError
        if time.monotonic() > end:
            self.stop()
            raise WorkerFailed(f"the computation took longer than {seconds:.0f} s and was stopped")
        used = resident_memory(self._process.pid) / 2**30
        if self.memory and used > self.memory:
            self.stop()
            raise WorkerFailed(f"the computation used {used:.1f} GiB, more than {self.memory:g} GiB, and was stopped")

    def _ended(self) -> str:
        """Describe how the process ended."""
        try:
            code = self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self.stop()
            return "closed its connection and was stopped"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"


def resident_memory(pid: int) -> int:
    """Bytes of memory that a process uses; 0 if the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def serve(connection: Connection) -> None:
    """Answer requests until the other side closes the connection.

    The first request sets threads, precision and device. ``WorkerPool`` sends only requests with the same settings.

    Args:
        connection: The connection that delivers requests, as pairs of envelope and node config.
    """
    from fedstein.flower.node.client_app import start_computing
    from fedstein.flower.node.handlers import handle
    from fedstein.flower.node.rows import read_node
    from fedstein.runs.jax_setup import release_programs

    while True:
        try:
            request, node_config = connection.recv()
        except EOFError:
            return
        try:
            start_computing(request.head.get("config", ""), str(node_config.get("state-dir", "")))
            release_programs()
            reply: Envelope | str = handle(request, read_node(node_config))
        except Exception as error:
            reply = f"{type(error).__name__}: {error}"
        connection.send(reply)


def end_with_parent() -> None:
    """Ask Linux to end this process when the node ends, even in the middle of a computation."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the node, which closes the connection
    end_with_parent()
    serve(Connection(int(sys.argv[1])))
