"""Calls of the ``flwr`` command for one link: it starts and stops runs, and lists nodes."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedstein.errors import FedsteinError
from fedstein.files import write_bytes
from fedstein.flower.launch.environment import environment, program, tail

CONNECTION = "fleet"  # the name of the link in the config.toml of the flwr command
HOME = "command"

Value = str | int | float | bool


class Command:
    """Calls of the ``flwr`` command. Each starts a process and takes about a second of computation."""

    def __init__(self, folder: Path, extra: Mapping[str, str], patience: float) -> None:
        """
        Args:
            folder: The folder in which the command keeps its files.
            extra: Environment variables besides the inherited ones.
            patience: Seconds to wait for an answer of the link.
        """
        self.folder = folder
        self.patience = patience
        self._environment = environment(folder, HOME, 1, extra)

    def connect(self, address: str, ca: Path | None) -> None:
        """Tell ``flwr`` where the link is.

        Args:
            address: Host and port.
            ca: The certificate of the CA that signed the link's; None for a link without encryption.
        """
        home = Path(self._environment["FLWR_HOME"])
        home.mkdir(parents=True, exist_ok=True)
        trust = {"insecure": True} if ca is None else {"root-certificates": str(ca)}
        connections = {"default": CONNECTION, CONNECTION: {"address": address, **trust}}
        write_bytes(home / "config.toml", tomli_w.dumps({"superlink": connections}).encode())

    def submit(self, app: Path, overrides: Mapping[str, Value] | None = None) -> int:
        """Start a run.

        Args:
            app: The app folder.
            overrides: Settings in place of the app's own.

        Returns:
            The run's id.

        Raises:
            FedsteinError: The link does not accept the run.
        """
        words: list[str | Path] = []
        if overrides:  # written to a file, because Flower's command line has no escapes
            path = self.folder / f"overrides-{secrets.token_hex(4)}.toml"
            write_bytes(path, tomli_w.dumps(dict(overrides)).encode())
            words = ["--run-config", path]
        return int(self.ask("run", app, CONNECTION, *words)["run-id"])

    def status(self, run: int) -> str:
        """``pending``, ``starting``, ``running``, or ``finished:`` with ``completed``, ``failed`` or ``stopped``."""
        return self.ask("list", CONNECTION, "--run-id", str(run))["runs"][0]["status"]

    def wait(self, run: int, seconds: float, *, every: float = 2.0) -> str:
        """Wait until a run has finished.

        Args:
            run: The run's id.
            seconds: How long to wait at most.
            every: Seconds between two checks of the status.

        Returns:
            The run's status.

        Raises:
            FedsteinError: The run has not finished in time.
        """
        end = time.monotonic() + seconds
        while not (status := self.status(run)).startswith("finished"):
            if time.monotonic() > end:
                raise FedsteinError(f"run {run} is still {status} after {seconds:.0f} s")
            time.sleep(every)
        return status

    def stop(self, run: int) -> None:
        """Stop a run, unless it has already finished."""
        try:
            self.ask("stop", str(run), CONNECTION)
        except FedsteinError:
            if not self.status(run).startswith("finished"):
                raise

    def logs(self, run: int) -> str:
        """Return what the server process of the run has printed. Flower keeps it at the link, not in a log file."""
        return self.flwr("log", str(run), CONNECTION, "--show")

    def register(self, public_key: Path, name: str | None = None) -> None:
        """Let the node with this key connect."""
        self.ask("supernode", "register", public_key, CONNECTION, *(["--name", name] if name else []))

    def nodes(self) -> list[dict[str, Any]]:
        """The link's own list of nodes: ``node-id``, ``status`` and more."""
        return self.ask("supernode", "list", CONNECTION)["nodes"]

    def flwr(self, *words: str | Path) -> str:
        """Run ``flwr``.

        Args:
            words: Its arguments.

        Returns:
            Its output.

        Raises:
            FedsteinError: The command fails, or gets no answer in time.
        """
        command = [program("flwr"), *(str(word) for word in words)]
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=self.patience,
            )
        except subprocess.TimeoutExpired:
            raise FedsteinError(f"flwr {words[0]} had no answer from the link in {self.patience:.0f} s") from None
        if done.returncode:
            raise FedsteinError(f"flwr {words[0]} failed: {tail(done.stdout)}")
        return done.stdout

    def ask(self, *words: str | Path) -> dict[str, Any]:
        """Run ``flwr`` and read its answer as JSON.

        Args:
            words: Its arguments.

        Returns:
            The answer.

        Raises:
            FedsteinError: The command fails, or its answer is not JSON.
        """
        text = self.flwr(*words, "--format", "json")
        try:
            answer = json.loads(text[text.index("{") :])
        except ValueError:
            raise FedsteinError(f"flwr {words[0]} did not answer with JSON: {tail(text)}") from None
        if not answer.get("success", True):
            raise FedsteinError(f"flwr {words[0]} failed: {answer.get('error-message', answer)}")
        return answer
