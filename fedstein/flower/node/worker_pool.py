"""The processes that compute for one node: one for each setting of threads, precision and device."""

from __future__ import annotations

import tomllib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from fedstein.flower.messages import Envelope
from fedstein.flower.node.worker import Worker, WorkerFailed

MOST = 3  # processes that a node keeps; the least recently used one ends first

Setting = tuple[str, str, str]


class WorkerPool:
    """Processes that keep JAX, rows and compiled programs in memory.

    Threads, precision and device are fixed when JAX starts, so runs that differ in them get separate processes. Other
    runs share a process; the id of the run keeps their states apart.
    """

    def __init__(self, memory: float = 0.0, most: int = MOST) -> None:
        """
        Args:
            memory: The most memory of a process, in GiB; 0 for no limit.
            most: How many processes are kept.
        """
        self.memory, self.most = memory, most
        self._workers: OrderedDict[Setting, Worker] = OrderedDict()
        self._spare: Worker | None = Worker(memory)  # it imports JAX before the first request comes

    def ask(self, request: Envelope, node_config: Mapping[str, Any], seconds: float) -> Envelope:
        """Have a process answer a request; see ``Worker.ask``.

        Args:
            request: The request of the server.
            node_config: The node config of the SuperNode.
            seconds: How long it may take.

        Returns:
            The reply.

        Raises:
            WorkerFailed: There is no reply. The next request gets a new process.
        """
        setting = setting_of(str(request.head.get("config", "")))
        worker = self._workers.pop(setting, None)
        if worker is None or not worker.running:
            worker = self._take_spare()
        self._workers[setting] = worker
        while len(self._workers) > self.most:
            self._workers.popitem(last=False)[1].stop()
        try:
            return worker.ask(request, node_config, seconds)
        except WorkerFailed:
            if not worker.running:
                del self._workers[setting]
            raise

    def close(self) -> None:
        """End all processes."""
        for worker in [*self._workers.values(), *([self._spare] if self._spare else [])]:
            worker.stop()
        self._workers.clear()
        self._spare = None

    def _take_spare(self) -> Worker:
        spare, self._spare = self._spare, None
        return spare if spare is not None and spare.running else Worker(self.memory)


def setting_of(config: str) -> Setting:
    """Return the settings that a process fixes when JAX starts: threads, precision and device.

    Args:
        config: The server's config as TOML. If it cannot be read, the defaults are returned, and the handler says what
            is wrong.
    """
    try:
        engine = tomllib.loads(config).get("engine", {})
        return str(engine.get("threads", 1)), str(engine.get("precision", "float32")), str(engine.get("device", "auto"))
    except (tomllib.TOMLDecodeError, AttributeError):
        return "1", "float32", "auto"
