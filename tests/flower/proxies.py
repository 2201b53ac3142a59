"""Proxies in front of Flower's link: one that cuts connections at chosen requests, and one that is slow."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fedstein.flower.launch.environment import HOST

AWAY = 0.3  # seconds that the link stays away after a cut
POLLS = ("get-nodes", "pull-messages", "send-node-heartbeat", "send-task-heartbeat")  # how many there are is chance
Answer = tuple[int, list[tuple[str, str]], bytes]


class Proxy:
    """Hands requests over to the link; ``address`` is where it takes them."""

    def __init__(self, port: int):
        """
        Args:
            port: The link's port.
        """
        self.port, self.lock = port, threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                answer = proxy.handle(self.path, dict(self.headers), body)
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
        return self.forward(path, headers, body)

    def forward(self, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        """The link's answer; None where it is not there."""
        link = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            link.request("POST", path, body, headers)
            response = link.getresponse()
            return response.status, response.getheaders(), response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            link.close()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Cutter(Proxy):
    """Hands requests over to the link. In round r (from 1) it cuts the connections of the requests in ``plan(r)``.

    Requests that only look whether something has come are not counted, unless they bring something.
    """

    def __init__(self, port: int, rounds_done: Callable[[], int], plan: Callable[[int], dict[int, bool]]):
        """
        Args:
            port: The link's port.
            rounds_done: Says how many rounds are over.
            plan: Round -> which of its requests are cut, and whether the link does before what it was asked.
        """
        self.rounds_done, self.plan = rounds_done, plan
        self.seen: dict[int, list[str]] = {}  # round -> the kinds of its requests that count
        self.cuts: list[tuple[int, int, str, bool]] = []  # round, number of the request, its kind, whether it was done
        self.back = 0.0
        super().__init__(port)

    def handle(self, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        """The link's answer; None where the connection is to be cut."""
        kind = path.rsplit("/", 1)[1]
        with self.lock:
            if time.monotonic() < self.back:
                return None
            number = self._count(kind) if kind not in POLLS else 0
            if self._cut(kind, number, done=False):
                return None
        answer = self.forward(path, headers, body)
        if answer is None:
            return None
        with self.lock:
            if kind == "pull-messages" and len(answer[2]) > 4:
                number = self._count(kind)
            if self._cut(kind, number, done=True):
                return None
        return answer

    def _count(self, kind: str) -> int:
        found = self.seen.setdefault(self.rounds_done() + 1, [])
        found.append(kind)
        return len(found)

    def _cut(self, kind: str, number: int, done: bool) -> bool:
        playing = self.rounds_done() + 1
        plan = self.plan(playing) if number else {}
        planned = plan.get(number) is done or (kind in POLLS and number in plan)  # that it counts is known afterwards
        if not planned or any(cut[:2] == (playing, number) for cut in self.cuts):
            return False
        self.cuts.append((playing, number, kind, done))
        self.back = time.monotonic() + AWAY
        return True


class SlowLine(Proxy):
    """A line that takes its time for every request, carries few bytes a second, and breaks off now and then."""

    def __init__(self, port: int, delay: float, bytes_a_second: float, broken: float, seed: int):
        """
        Args:
            port: The link's port.
            delay: Seconds for every request.
            bytes_a_second: What the line carries, in each direction.
            broken: The share of requests whose connection is cut, before or after the link has got them.
            seed: Which requests these are.
        """
        self.delay, self.rate, self.broken, self.random = delay, bytes_a_second, broken, random.Random(seed)
        self.cuts, self.carried = 0, 0
        self.directions = threading.Lock(), threading.Lock()
        super().__init__(port)

    def handle(self, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        with self.lock:
            cut, before = self.random.random() < self.broken, self.random.random() < 0.5
            self.cuts += cut
        time.sleep(self.delay)
        if cut and before:
            return None
        self._carry(0, len(body))
        answer = self.forward(path, headers, body)
        if answer is None or cut:
            return None
        self._carry(1, len(answer[2]))
        return answer

    def _carry(self, direction: int, size: int) -> None:
        with self.directions[direction]:
            self.carried += size
            time.sleep(size / self.rate)
