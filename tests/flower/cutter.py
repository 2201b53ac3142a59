"""A proxy in front of Flower's link that cuts connections at chosen requests and then stays away for a moment."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fedstein.flower.launch.environment import HOST

AWAY = 0.3  # seconds that the link stays away after a cut
POLLS = ("get-nodes", "pull-messages", "send-node-heartbeat", "send-task-heartbeat")  # how many there are is chance
Answer = tuple[int, list[tuple[str, str]], bytes]


class Cutter:
    """Hands requests over to the link. In round r (from 1) it cuts the connection of the ``plan(r)``-th request.

    Requests that only look whether something has come are not counted, unless they bring something.
    """

    def __init__(self, port: int, rounds_done: Callable[[], int], plan: Callable[[int], tuple[int, bool]]):
        """
        Args:
            port: The link's port.
            rounds_done: Says how many rounds are over.
            plan: Round -> which of its requests is cut (0: none), and whether the link does before what it was asked.
        """
        self.port, self.rounds_done, self.plan = port, rounds_done, plan
        self.seen: dict[int, list[str]] = {}  # round -> the kinds of its requests that count
        self.cuts: list[tuple[int, int, str, bool]] = []  # round, number of the request, its kind, whether it was done
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
                except OSError:  # whoever asked has gone
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

    def handle(self, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        """The link's answer; None where the connection is to be cut."""
        kind = path.rsplit("/", 1)[1]
        with self.lock:
            if time.monotonic() < self.back:
                return None
            number = self._count(kind) if kind not in POLLS else 0
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
            if kind == "pull-messages" and len(content) > 4:
                number = self._count(kind)
            if self._cut(kind, number, done=True):
                return None
        return response.status, response.getheaders(), content

    def _count(self, kind: str) -> int:
        found = self.seen.setdefault(self.rounds_done() + 1, [])
        found.append(kind)
        return len(found)

    def _cut(self, kind: str, number: int, done: bool) -> bool:
        playing = self.rounds_done() + 1
        if not number or self.plan(playing) != (number, done) or any(cut[:2] == (playing, number) for cut in self.cuts):
            return False
        self.cuts.append((playing, number, kind, done))
        self.back = time.monotonic() + AWAY
        return True

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
