"""A message whose arrays never come, which is what a server leaves that is killed within a message."""

from __future__ import annotations

import os
import re
import socket
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from echo import until
from flower_runs import BLR, in_process, lines, settings
from flwr.supercore.run import RunNotRunningException

from fedstein.flower.launch.appdir import flatten, write_app
from fedstein.flower.launch.environment import HOST
from fedstein.flower.launch.processes import Fleet
from fedstein.flower.node.receiver import Receiver
from fedstein.flower.waits import Alarm
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset

LONG = 240.0  # seconds that nothing here takes, on however busy a machine
LATE = "the arrays of a message are not there yet"


class Incoming:
    """Messages at the link, and Flower's function that stores one: it waits until the message's arrays are there."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.there = {name: threading.Event() for name in names}

    def receive(self) -> str | None:
        return self.names.pop(0) if self.names else None

    def store(self, receive: Callable[[], Any], state: str) -> int | None:
        assert state == "the node's"
        name = receive()
        assert self.there[name].wait(10)
        return {"first": 1, "second": 2, "dropped": None}[name]


def test_other_messages_are_taken_while_the_arrays_of_one_are_awaited() -> None:
    incoming, alarm = Incoming("first", "second", "dropped"), Alarm()
    receiver = Receiver(incoming.store, alarm, patience=0.05)

    def take() -> int | None:
        return receiver(receive=incoming.receive, state="the node's")

    assert take() is None, "its arrays are not there"
    incoming.there["second"].set()
    assert take() == 2
    alarm.arrived.clear()
    assert take() is None, "the third is not complete either"
    incoming.there["dropped"].set()
    incoming.there["first"].set()
    assert alarm.arrived.wait(10), "the node's tasks are told of the message that is complete now"
    until(lambda: take() == 1, 10)

    def settled() -> bool:
        assert take() is None
        return receiver._late == []

    until(settled, 10)  # the thread of the dropped message may need a moment to end


def test_what_flower_raises_ends_the_node_as_before_and_a_run_that_has_ended_does_not() -> None:
    def fail(error: BaseException) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            raise error

        return call

    mistake = OSError("the link's certificate has expired")
    with pytest.raises(OSError, match="expired"):
        Receiver(fail(mistake), Alarm())(receive=lambda: "message")
    with pytest.raises(OSError, match="expired"):
        Receiver(fail(mistake), Alarm())(receive=fail(mistake))
    assert Receiver(fail(mistake), Alarm())(receive=fail(RunNotRunningException())) is None


class Forwarder:
    """Hands connections on to the link. The first server that sends arrays of a message does not get them there.

    A server is known by the token that the link gave to its task.
    """

    def __init__(self, port: int) -> None:
        self.token, self.closed = b"", threading.Event()
        forwarder = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection((HOST, port)) as link:
                    threading.Thread(target=forwarder.copy, args=(link, self.request, False), daemon=True).start()
                    forwarder.copy(self.request, link, True)

        self.server = socketserver.ThreadingTCPServer((HOST, 0), Handler)
        self.server.daemon_threads = True
        self.address = f"{HOST}:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def copy(self, source: socket.socket, target: socket.socket, asks: bool) -> None:
        try:
            while data := source.recv(65536):
                if asks and b"/push-object " in data:
                    token = re.search(rb"(?i)\r\nflwr-task-token: (\S+)", data)
                    self.token = self.token or (token[1] if token else b"")
                    if token is None or token[1] == self.token:
                        self.closed.wait()
                        return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # one of the two has gone
            pass

    def close(self) -> None:
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.slow
def test_a_message_whose_arrays_never_come_keeps_no_node_from_another_run(tmp_path: Path) -> None:
    """Real processes. The first server lives, so that the link does not end its run; its greeting has no arrays."""
    raw = settings(BLR, partition={"clients": 2}, selection={"kind": "ksd"}, rounds=2)
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    forwarders: list[Forwarder] = []

    def through(port: int) -> str:
        forwarders.append(Forwarder(port))
        return forwarders[0].address

    def submit(fleet: Fleet, folder: Path) -> int:
        config, _ = resolve({**raw, "engine": {"kind": "flower", "threads": 1}}, facts_of(load_dataset(raw)))
        return fleet.submit(write_app(folder / "app", {**flatten(config.to_dict()), "out": str(folder / "run")}).parent)

    variables = {"JAX_COMPILATION_CACHE_DIR": cache} if cache else None
    with Fleet(tmp_path / "fleet", variables=variables, patience=120) as fleet:
        fleet.start_link(through)
        for client in range(2):
            node = {"partition-id": client, "state-dir": str(tmp_path / "state" / str(client))}
            fleet.start_node(f"client-{client}", node, wait=False)
        try:
            stuck = submit(fleet, tmp_path / "stuck")
            until(lambda: all(LATE in fleet.log(f"client-{client}") for client in range(2)), LONG)
            assert forwarders[0].token
            submit(fleet, tmp_path)
            until(lambda: (tmp_path / "run" / "summary.json").exists(), LONG)
            assert fleet.status(stuck) == "running"
        finally:
            forwarders[0].close()
    assert lines(tmp_path / "run") == lines(in_process(raw, tmp_path / "whole"))
