"""A resident node: Flower's SuperNode, and beside it a process that keeps JAX, rows and compiled programs in memory.

``fedstein node`` and ``fedstein deploy demo`` start this module as a program, with the options of ``flower-supernode``.
"""

from __future__ import annotations

import argparse
import atexit
import os
import secrets
import sys
import tempfile
from pathlib import Path

from fedstein.flower.launch.environment import HOST, free_port
from fedstein.flower.node.worker_pool import WorkerPool
from fedstein.flower.waits import Alarm, require_tested_flower, shorten_node_waits

SECONDS = 3600.0  # the most time that one answer may take


def main(arguments: list[str] | None = None) -> None:
    """Run a resident node until it is stopped.

    Args:
        arguments: Options of ``flower-supernode``, and ``--task-seconds`` and ``--memory``. None uses the command line.
    """
    require_tested_flower()
    reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    reader.add_argument("--task-seconds", type=float, default=SECONDS)
    reader.add_argument("--memory", type=float, default=0.0)
    reader.add_argument("--port", type=int, default=0)
    own, others = reader.parse_known_args(sys.argv[1:] if arguments is None else arguments)
    pool = WorkerPool(own.memory)  # started first, so that its process imports JAX while this one imports Flower
    atexit.register(pool.close)
    from flwr.supernode.cli import flower_supernode

    from fedstein.flower.node.object_cache import keep_objects
    from fedstein.flower.node.push_retries import retry_pushes
    from fedstein.flower.node.receiver import take_messages
    from fedstein.flower.node.tasks import TaskRunner

    port, alarm, secret = own.port or free_port(), Alarm(), secrets.token_hex(32)
    with tempfile.NamedTemporaryFile("w", prefix="fedstein-", suffix=".secret") as file:  # only its owner can read it
        file.write(secret)
        file.flush()
        path = Path(file.name)
        os.chmod(path, 0o600)
        shorten_node_waits(alarm)
        keep_objects()
        take_messages(alarm)
        retry_pushes()
        sys.argv = ["flower-supernode", *others, "--host", HOST, "--port", str(port)]
        sys.argv += ["--isolation", "process", "--superexec-auth-secret-file", str(path)]
        TaskRunner(f"{HOST}:{port}", secret.encode(), pool, alarm, own.task_seconds).start()
        flower_supernode()


if __name__ == "__main__":
    main()
