"""Flower's programs: their environment variables, their paths, and the last lines of their logs."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from fedstein.errors import InputError

HOST = "127.0.0.1"


def environment(folder: Path, home: str, threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for one of Flower's programs.

    Telemetry and the update check are off, Flower installs nothing, it looks for work often, and compiled programs are
    cached in one place. The rest is inherited.

    Args:
        folder: The working folder of all programs.
        home: The name of this program's own FLWR_HOME in it.
        threads: Threads of the computation.
        extra: Further variables.

    Returns:
        All variables.
    """
    inherited = dict(os.environ)
    direct = ",".join(filter(None, [inherited.get("NO_PROXY", inherited.get("no_proxy", "")), HOST, "localhost"]))
    return {
        **inherited,
        # A SuperNode starts flower-superexec, which starts flwr-clientapp; both are found in PATH.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", "")]),
        "NO_PROXY": direct,
        "no_proxy": direct,
        "FLWR_HOME": str(folder / "homes" / home),
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.4",  # Flower's own default is 1 s
        "NPROC": str(threads),
        # Every message starts a new process, so programs are cached even if they compile quickly.
        "JAX_COMPILATION_CACHE_DIR": inherited.get("JAX_COMPILATION_CACHE_DIR") or str(folder / "jax-cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        **extra,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }


def program(name: str) -> str:
    """Find one of Flower's programs.

    Args:
        name: Its name.

    Returns:
        Its path, in the folder of this Python, where ``fedstein[flower]`` installs it.

    Raises:
        InputError: The program does not exist.
    """
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise InputError(
            f"expected {name} beside {sys.executable}, found none; install it: pip install 'fedstein[flower]'"
        )
    return str(path)


def free_port() -> int:
    """Find a port on which no program listens now."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return one.getsockname()[1]


def accepts(port: int) -> bool:
    """Whether a program on this machine accepts connections at the port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def tail(text: str, lines: int = 8) -> str:
    """The last non-empty lines of a text, without colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return "\n".join([line for line in plain.splitlines() if line.strip()][-lines:])
