"""A Flower app that only answers, to test the processes apart from what Fedstein computes in them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "echo"
version = "1.0.0"
description = "Answers."
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "echo_app.server:app"
clientapp = "echo_app.client:app"
[tool.flwr.app.config]
rounds = 1
nodes = 1
out = ""
"""

CLIENT = """
import os
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.query()
def query(message, context):
    kept = ("FLWR_TELEMETRY_ENABLED", "NPROC", "JAX_COMPILATION_CACHE_DIR")
    record = ConfigRecord({"site": context.node_config["site"], **{key: os.environ.get(key, "") for key in kept}})
    return Message(RecordDict({"echo": record}), reply_to=message)
"""

SERVER = """
import json, time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    settings = context.run_config
    with Path(settings["out"]).open("a") as out:
        while len(nodes := list(grid.get_node_ids())) < settings["nodes"]:
            time.sleep(0.1)
        for k in range(settings["rounds"]):
            ask = RecordDict({"ask": ConfigRecord({"k": k})})
            start = time.monotonic()
            waiting = set(grid.push_messages([Message(ask, n, "query") for n in nodes]))
            while waiting and time.monotonic() - start < 25:  # what was under way when a link died is lost
                for reply in grid.pull_messages(waiting):
                    waiting.discard(reply.metadata.reply_to_message_id)
                    answer = {"error": reply.error.code} if reply.has_error() else dict(reply.content["echo"])
                    print(json.dumps({"round": k, "seconds": time.monotonic() - start, **answer}), file=out, flush=True)
                time.sleep(0.1)
"""


def write_echo(folder: Path) -> Path:
    package = folder / "echo_app"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    for name, text in (("__init__", ""), ("server", SERVER), ("client", CLIENT)):
        (package / f"{name}.py").write_text(text)
    return folder


def answers(out: Path) -> list[dict[str, Any]]:
    """The whole lines that are there so far."""
    text = out.read_text() if out.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Poll; what the condition gave in the end."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return result
