"""A SuperLink, its SuperExec and SuperNodes as real processes on this machine: ``fedstein deploy demo`` and the tests.

This module does not import Flower. It runs Flower's programs in the folder of this Python, as a user would.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import tomli_w

from fedstein.errors import FedsteinError, InputError
from fedstein.files import write_bytes
from fedstein.flower.launch import demo_client, demo_node
from fedstein.flower.launch.command import Command, Value
from fedstein.flower.launch.environment import HOST, accepts, environment, free_port, program, tail
from fedstein.flower.launch.fleet_types import EndedEarly, Node, PortTaken, Tls
from fedstein.flower.launch.groups import GRACE, Program, Supervisor
from fedstein.flower.node import resident

LINK, EXEC = "link", "superexec"
BUSY = "address already in use"
APP = r"flwr-\w+app|demo_client\.py|node/worker\.py"  # the processes that answer messages, and the server process
NODE_ID = re.compile(r"SuperNode ID: (\d+)")
# The link refuses a node that was killed and restarts with its key until two heartbeats are missing: twice 30 s.
OFFLINE = 75.0


class Fleet:
    """Flower's programs as real processes, with one working folder.

    It is used in a ``with`` block. All processes end when the block ends, for whatever reason. A watchdog ends them if
    this process itself is killed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tls: Tls | None = None,
        authenticate: bool = False,
        threads: int = 1,
        isolation: str = "resident",
        variables: Mapping[str, str] | None = None,
        patience: float = 60.0,
    ) -> None:
        """
        Args:
            folder: The working folder: logs, the link's database, node configs.
            tls: The files of an encrypted link; None for one without encryption.
            authenticate: Whether only registered nodes may connect; it needs ``tls``.
            threads: Threads of each computation.
            isolation: How nodes answer messages: ``"resident"`` by a process that stays, ``"subprocess"`` by a new
                process for each message, which is Flower's own way with shorter waits.
            variables: Environment variables besides the inherited ones.
            patience: Seconds to wait until a program is ready.

        Raises:
            InputError: ``authenticate`` was set without ``tls``.
        """
        if authenticate and tls is None:
            raise InputError("node authentication needs TLS: give certificates too (fedstein deploy certs DIR)")
        self.folder = folder.resolve()
        self.tls = tls
        self.authenticate = authenticate
        self.isolation = isolation
        self.patience = patience
        self.port = 0
        self._through: str | None = None
        self._threads = threads
        self._extra = dict(variables or {})
        self.command = Command(self.folder, self._extra, patience)
        self._programs: dict[str, Program] = {}
        self._nodes: dict[str, Node] = {}
        self._supervisor: Supervisor | None = None
        self._old_handler: Any = None

    # The block

    def __enter__(self) -> Fleet:
        program("flower-superlink")  # raises an error before anything is started
        self.folder.mkdir(parents=True, exist_ok=True)
        self._supervisor = Supervisor()
        if threading.current_thread() is threading.main_thread():
            self._old_handler = signal.getsignal(signal.SIGTERM)
            if self._old_handler is signal.SIG_DFL:  # SIGTERM would end this process without leaving the block
                signal.signal(signal.SIGTERM, _terminate)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.supervisor.close()
        finally:
            self._programs.clear()
            self._supervisor = None
            if self._old_handler is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @property
    def supervisor(self) -> Supervisor:
        if self._supervisor is None:
            raise FedsteinError("a Fleet is used inside a with block")
        return self._supervisor

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    # The link

    def start_link(self, through: Callable[[int], str] | None = None) -> None:
        """Start the SuperLink, on a free port, and the SuperExec that starts server processes for it.

        Args:
            through: The link's port -> the address at which the SuperExec and the server processes reach the link; for
                a proxy in between.

        Raises:
            FedsteinError: A program ended before it was ready, or was not ready in time.
        """
        for attempt in range(5):
            self.port = self.port or free_port()
            try:
                self._start_link()
                break
            except PortTaken:  # another program has taken the port
                if attempt == 4:
                    raise
                self.port = 0
        self.command.connect(self.address, None if self.tls is None else self.tls.ca)
        self._through = through(self.port) if through else None
        self._start_exec()

    def kill_link(self) -> None:
        """``kill -9`` of the SuperLink alone; the SuperExec and the server process keep trying to reach it."""
        self._end(LINK, grace=0)

    def restart_link(self) -> None:
        """Start the SuperLink again, on the same port and database, and the SuperExec, if it has ended."""
        self._end(LINK, grace=GRACE)
        self._start_link()
        if EXEC not in self._programs or not self._programs[EXEC].running():
            self._start_exec()

    def _start_link(self) -> None:
        words: list[str | Path] = [program("flower-superlink"), *self._tls_of_link()]
        words += ["--host", HOST, "--port", str(self.port), "--database", self.folder / "link.db"]
        words += ["--isolation", "process", "--superexec-auth-secret-file", self._secret()]
        words += ["--enable-supernode-auth"] if self.authenticate else []
        self._start(LINK, words)
        self._await(LINK, lambda link: "Uvicorn running on" in link.output() and accepts(self.port), "take connections")

    def _start_exec(self) -> None:
        words: list[str | Path] = [program("flower-superexec"), *self._tls_of_client()]
        words += [
            "--runtime-api-address",
            self._through or self.address,
            "--superexec-auth-secret-file",
            self._secret(),
        ]
        self._end(EXEC, grace=0)
        self._start(EXEC, words)

    def _secret(self) -> Path:
        """The file with the secret that a SuperExec needs to get server tasks from the link."""
        path = self.folder / "superexec.secret"
        if not path.exists():
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
        return path

    def _tls_of_link(self) -> list[str | Path]:
        if self.tls is None:
            return ["--insecure"]
        ca, certificate, key = self.tls
        return ["--ssl-ca-certfile", ca, "--ssl-certfile", certificate, "--ssl-keyfile", key]

    def _tls_of_client(self) -> list[str | Path]:
        return ["--insecure"] if self.tls is None else ["--root-certificates", self.tls.ca]

    # The nodes

    def start_node(
        self,
        name: str,
        settings: Mapping[str, Value],
        key: Path | None = None,
        *,
        plain: bool = False,
        through: str | None = None,
        wait: bool = True,
    ) -> int | None:
        """Start a SuperNode.

        Args:
            name: Its name here.
            settings: Its node config.
            key: Its private key. ``register`` must have registered the public key.
            plain: Whether to connect without TLS, to test that the link refuses the node.
            through: The address at which it reaches the link; for a proxy in between.
            wait: Whether to wait until it is connected.

        Returns:
            The node's id, or None without ``wait``.

        Raises:
            InputError: The name is invalid.
            FedsteinError: The node was started before, or did not connect in time.
        """
        if name in (LINK, EXEC) or not re.fullmatch(r"[\w.-]+", name):
            raise InputError(f"expected a node name of letters, digits, . _ and -, got {name!r}")
        if name in self._programs:
            raise FedsteinError(f"node {name} has been started before; use restart_node")
        path = self.folder / f"{name}.toml"
        write_bytes(path, tomli_w.dumps(dict(settings)).encode())
        self._nodes[name] = Node(path, key, plain, through)
        return self._start_node(name, wait)

    def kill_node(self, name: str) -> None:
        """``kill -9`` of the node and of the client process it may have started."""
        self._end(name, grace=0)

    def stop_node(self, name: str) -> None:
        """Ask the node to stop; it tells the link that it leaves."""
        self._end(name, grace=GRACE)

    def pause_node(self, name: str) -> None:
        """Suspend the node (SIGSTOP) and the client process it may have started: it stays connected, but silent."""
        os.killpg(self._programs[name].group, signal.SIGSTOP)

    def resume_node(self, name: str) -> None:
        """Let a paused node continue."""
        os.killpg(self._programs[name].group, signal.SIGCONT)

    def restart_node(self, name: str, *, wait: bool = True) -> int | None:
        """Start the node as before.

        Without a key it gets a new id. With a key it is admitted as soon as the link counts it as offline.

        Args:
            name: The node's name.
            wait: Whether to wait until it is connected.

        Returns:
            The node's id, or None without ``wait``.
        """
        self._end(name, grace=GRACE)
        return self._start_node(name, wait, again=self._nodes[name].key is not None)

    def node_id(self, name: str) -> int | None:
        """The id that the link gave to the node at this start; None if it is not connected yet."""
        found = NODE_ID.search(self._programs[name].output())
        return int(found[1]) if found else None

    def register(self, public_key: Path, name: str | None = None) -> None:
        """Let the node with this key connect."""
        self.command.register(public_key, name)

    def nodes(self) -> list[dict[str, Any]]:
        """The link's own list of nodes: ``node-id``, ``status`` and more."""
        return self.command.nodes()

    def _start_node(self, name: str, wait: bool, again: bool = False) -> int | None:
        """Start a node; ``again`` waits while the link still counts the node as online from before its restart."""
        node = self._nodes[name]
        end = time.monotonic() + (max(self.patience, OFFLINE) if again else self.patience)
        while True:
            # -P: modules of this folder must not hide other modules of the same names
            module = resident if self.isolation == "resident" else demo_node
            words: list[str | Path] = [sys.executable, "-P", str(module.__file__), "--port", str(free_port())]
            words += ["--insecure"] if node.plain else self._tls_of_client()
            words += ["--superlink", node.through or self.address]
            words += ["--host", HOST] if self.isolation != "resident" else []
            words += ["--node-config", node.settings]
            words += ["--auth-supernode-private-key", node.key] if node.key else []
            self._start(name, words)
            if not wait:
                return None
            try:
                self._await(name, lambda _: self.node_id(name) is not None, "connect", end - time.monotonic())
                return self.node_id(name)
            except PortTaken:
                if time.monotonic() > end:
                    raise
            except EndedEarly:
                if not again or time.monotonic() > end:
                    raise
                time.sleep(2.0)

    # Runs

    def submit(self, app: Path, overrides: Mapping[str, Value] | None = None) -> int:
        """Start a run of the app in this folder, with these settings in place of its own; returns the run's id."""
        return self.command.submit(app, overrides)

    def status(self, run: int) -> str:
        """Return the status that ``flwr list`` shows: ``running``, ``finished:completed``, ``finished:failed``, ..."""
        return self.command.status(run)

    def wait(self, run: int, seconds: float, *, every: float = 2.0) -> str:
        """Wait until the run has finished; returns its status."""
        return self.command.wait(run, seconds, every=every)

    def stop(self, run: int) -> None:
        """Stop the run."""
        self.command.stop(run)

    def logs(self, run: int) -> str:
        """Return what the server process of the run has printed."""
        return self.command.logs(run)

    def apps(self, name: str) -> list[int]:
        """The ids of a node's client processes, or of the server process (``name="superexec"``)."""
        return [number for number, line in self._programs[name].commands().items() if re.search(APP, line)]

    def kill_apps(self, name: str) -> int:
        """``kill -9`` of a node's client process, or of the server process (``"superexec"``); returns how many."""
        apps = self.apps(name)
        for number in apps:
            self.supervisor.kill(number)
        return len(apps)

    # Programs and their logs

    def running(self, name: str) -> bool:
        """Whether the program of this name runs: ``link``, ``superexec`` or a node."""
        return name in self._programs and self._programs[name].running()

    def groups(self, *names: str) -> list[int]:
        """The process groups of the programs that were started and not ended, or of those with these names."""
        return [one.group for name, one in self._programs.items() if not names or name in names]

    def log(self, name: str) -> str:
        """Return what the program has written to its log, over all its starts."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def log_tail(self, name: str, lines: int = 8) -> str:
        """The last lines that the program has written."""
        return tail(self.log(name), lines)

    def failure(self, name: str) -> str:
        """The end of a message about a program that failed: the path and the last lines of its log."""
        return f"the last lines of {self.folder / f'{name}.log'}: {self.log_tail(name)}"

    def _start(self, name: str, command: list[str | Path]) -> None:
        variables = environment(self.folder, name, self._threads, self._extra)
        Path(variables["FLWR_HOME"]).mkdir(parents=True, exist_ok=True)
        if self.isolation == "subprocess":
            variables["PATH"] = os.pathsep.join([str(self._quick_programs()), variables["PATH"]])
        self._programs[name] = self.supervisor.start(name, command, self.folder / f"{name}.log", variables)

    def _quick_programs(self) -> Path:
        """Make a folder with a ``flwr-clientapp`` that starts faster. It comes before Flower's own in PATH."""
        folder = self.folder / "bin"
        path = folder / "flwr-clientapp"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            words = shlex.join([sys.executable, "-P", str(demo_client.__file__)])
            path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            path.chmod(0o755)
        return folder

    def _end(self, name: str, grace: float) -> None:
        if (one := self._programs.pop(name, None)) is not None:
            self.supervisor.stop(one, grace=grace)

    def _await(self, name: str, ready: Callable[[Program], bool], what: str, seconds: float | None = None) -> None:
        """Wait until the program is ready.

        Raises:
            EndedEarly: It ended before that.
            FedsteinError: It was not ready in time.
        """
        one, end = self._programs[name], time.monotonic() + (self.patience if seconds is None else seconds)
        while not ready(one):
            if not one.running() or BUSY in one.output():
                taken = BUSY in one.output()
                self._end(name, grace=0)
                kind = PortTaken if taken else EndedEarly
                raise kind(f"{name} ended before it could {what}; {self.failure(name)}")
            if time.monotonic() > end:
                raise FedsteinError(f"{name} did not {what} in time; {self.failure(name)}")
            time.sleep(0.05)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
