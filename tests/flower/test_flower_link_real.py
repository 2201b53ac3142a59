"""A real link that is cut off at chosen points of an exchange, by a proxy between it and the server's process."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import BLR, events, in_process, lines, settings
from echo import until

from fedstein.flower.launch.appdir import flatten, write_app
from fedstein.flower.launch.environment import HOST, tail
from fedstein.flower.launch.processes import EXEC, Fleet
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset

pytestmark = pytest.mark.slow
CLIENTS = 2
LONG = 240.0  # seconds that nothing here takes, on however busy a machine
AWAY = 0.7  # seconds that the link stays away after each cut

# Which requests are cut, counted from 1 for each kind, and whether the link has done what it was asked before the cut.
# Requests for replies are counted where they bring some. The server greets the nodes (one push), then it asks for
# reports and for a training in each of two rounds.
PLAN: dict[str, dict[int, bool]] = {
    "get-nodes": {2: True},
    "push-messages": {4: True},
    "push-object": {2: True, 12: False, 23: True},
    "pull-messages": {2: True},
    "pull-object": {9: True},
    "confirm-message-received": {2: True},
}


class Cutter:
    """A proxy that hands requests over to the link, cuts the connections of those in ``plan``, and then stays away."""

    def __init__(self, port: int, plan: dict[str, dict[int, bool]]):
        self.port, self.left = port, {kind: dict(cuts) for kind, cuts in plan.items()}
        self.counts: dict[str, int] = {}
        self.back = 0.0
        self.lock = threading.Lock()
        cutter = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                answer = cutter.handle(self.path, dict(self.headers), body)
                if answer is None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, headers, content = answer
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:  # the server's process has gone
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a connection that was cut cannot be closed in order

        self.server = Server((HOST, 0), Handler)
        self.address = f"{HOST}:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handle(
        self, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """The link's answer; None where the connection is to be cut."""
        kind = path.rsplit("/", 1)[1]
        with self.lock:
            if time.monotonic() < self.back:
                return None
            number = self._count(kind) if kind != "pull-messages" else 0
            if self._cut(kind, number, done=False):
                return None
        link = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            link.request("POST", path, body, headers)
            response = link.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            link.close()
        with self.lock:
            if kind == "pull-messages" and content:
                number = self._count(kind)
            if self._cut(kind, number, done=True):
                return None
        return response.status, response.getheaders(), content

    def _count(self, kind: str) -> int:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return self.counts[kind]

    def _cut(self, kind: str, number: int, done: bool) -> bool:
        """Whether this request is one of the plan, to be cut before or after the link has ``done`` it."""
        cuts = self.left.get(kind, {})
        if cuts.get(number) is not done:
            return False
        del cuts[number]
        self.back = time.monotonic() + AWAY
        return True

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_a_link_that_is_cut_off_at_many_points_of_an_exchange(tmp_path: Path) -> None:
    """The run is the one without faults, to the bit, and no client's update counts twice."""
    raw = settings(
        BLR,
        partition={"clients": CLIENTS},
        selection={"kind": "ksd"},
        sites={"kind": "particles", "density": "log"},
        rounds=2,
    )
    waits = {"kind": "flower", "report_timeout": 60.0, "train_timeout": 60.0, "start_timeout": 120.0}
    config, _ = resolve({**raw, "engine": {"threads": 1, **waits}}, facts_of(load_dataset(raw)))
    out = tmp_path / "run"
    app = write_app(tmp_path / "app", {**flatten(config.to_dict()), "out": str(out)}).parent
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    cutters: list[Cutter] = []

    def through(port: int) -> str:
        cutters.append(Cutter(port, PLAN))
        return cutters[0].address

    with Fleet(
        tmp_path / "fleet", variables={"JAX_COMPILATION_CACHE_DIR": cache} if cache else None, patience=120
    ) as fleet:
        fleet.start_link(through)
        for client in range(CLIENTS):
            node = {"partition-id": client, "state-dir": str(tmp_path / "state" / str(client))}
            fleet.start_node(f"client-{client}", node, wait=False)
        run = fleet.submit(app)
        try:
            until(lambda: fleet.apps(EXEC), LONG)
            until(lambda: (out / "summary.json").exists() or not fleet.apps(EXEC), LONG)
            said = "" if (out / "summary.json").exists() else tail(fleet.logs(run), 60)
        finally:
            for cutter in cutters:
                cutter.close()
    assert (out / "summary.json").exists(), said
    happened = events(out)
    assert cutters[0].left == {kind: {} for kind in PLAN}, "every cut of the plan was made"
    whole = in_process(raw, tmp_path / "whole")
    assert lines(out) == lines(whole)
    assert (out / "posterior.safetensors").read_bytes() == (whole / "posterior.safetensors").read_bytes()
    away = [entry["reason"] for entry in happened if entry["event"] == "link away"]
    assert any("ObjectPushError" in reason for reason in away), "the fault that once ended a run"
