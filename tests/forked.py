"""Processes that start at once: commands and code in processes of their own, without importing JAX for each of them.

The first use starts a program that imports what every command needs and then forks for each request. What runs is a
real process with its own standard output, exit code, folder and environment. Variables that JAX reads when it is
imported (JAX_*) are those of the tests; whoever needs others starts Python.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from functools import cache
from pathlib import Path
from typing import Any

spent = 0.0  # processor seconds of the processes so far; they are no children of the tests' own process
LARGEST = 150_000  # bytes of a request; the system's limit for a packet is above 200,000


class Server:
    """The program that forks, and the connection to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", __file__, str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self.connection = ours  # its end is the end of the program
        atexit.register(self.end)

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def run(self, request: dict[str, Any], seconds: float) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            self.connection.settimeout(seconds)
            packet = json.dumps(request).encode()
            assert len(packet) < LARGEST
            socket.send_fds(self.connection, [packet], [out.fileno(), err.fileno()])
            global spent
            code, seconds = json.loads(self.connection.recv(100))
            spent += seconds
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(request["words"], code, out.read(), err.read())


@cache
def server() -> Server:
    return Server()


def fedstein(
    *words: str | Path, cwd: Path | None = None, seconds: float = 300, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The command line with these words, in a process of its own."""
    assert not any(name.startswith("JAX_") for name in variables), "JAX has been imported already"
    environment = {**os.environ, **variables}
    request = {"words": [str(word) for word in words], "cwd": str(cwd or Path.cwd()), "environment": environment}
    return server().run(request, seconds)


def python(text: str, cwd: Path, *, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    """``python -W error -c text``; what is imported before the text runs is not checked for warnings."""
    request = {"words": [], "text": text, "cwd": str(cwd), "environment": dict(os.environ)}
    return server().run(request, seconds)


def next_request(connection: socket.socket) -> dict[str, Any]:
    """In the program: wait for requests and fork; the child returns with its request, the program never."""
    while True:
        packet, files, _, _ = socket.recv_fds(connection, LARGEST, 2)
        if not packet:
            os._exit(0)
        child = os.fork()
        if child == 0:
            connection.close()
            for number, file in enumerate(files, start=1):
                os.dup2(file, number)
                os.close(file)
            return json.loads(packet)
        for file in files:
            os.close(file)
        _, status, used = os.wait4(child, 0)
        connection.send(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]).encode())


if __name__ == "__main__":
    from fedstein.cli import main

    for module in ("fedstein.api", "fedstein.cli.app", "fedstein.cli.run"):  # what every request needs
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what is shared by all processes stays shared

    request = next_request(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # Python itself read the tests' own
    sys.path[1:1] = [folder for folder in folders if folder and folder not in sys.path]
    code: Any = 0
    try:
        if "text" in request:
            sys.argv = ["-c"]
            sys.path.insert(0, "")
            warnings.simplefilter("error")
            exec(compile(request["text"], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = ["fedstein", *request["words"]]
            main()
    except SystemExit as stop:
        code = stop.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without taking apart all that was imported, which takes longer than most commands
