"""What the ledger says against what goes over the wire between the link and its nodes."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from echo import until
from flower_runs import events, lines

from fedstein.flower.launch.appdir import flatten, write_app
from fedstein.flower.launch.processes import Fleet
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset

CLIENTS = 2


class Meter:
    """A door to the link that counts what goes through it."""

    def __init__(self, port: int):
        self.link, self.up, self.down = port, 0, 0
        self.lock = threading.Lock()
        self.ends: list[socket.socket] = []
        self.server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self._open, daemon=True).start()

    def _open(self) -> None:
        while True:
            try:
                node, _ = self.server.accept()
                link = socket.create_connection(("127.0.0.1", self.link))
            except OSError:
                return
            self.ends += [node, link]
            for source, sink, way in ((node, link, "up"), (link, node, "down")):
                threading.Thread(target=self._carry, args=(source, sink, way), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        try:
            while data := source.recv(1 << 18):
                with self.lock:
                    setattr(self, way, getattr(self, way) + len(data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # either side has gone
            pass

    def close(self) -> None:
        self.server.shutdown(socket.SHUT_RDWR)
        for end in [self.server, *self.ends]:
            end.close()


def settings(**sections: Any) -> dict[str, Any]:
    """The paper's network, 784-100-9, with few rows so that nothing takes long."""
    return {
        "seed": 1,
        "rounds": 2,
        "data": {"name": "mnist"},
        "partition": {"clients": CLIENTS, "rows_per_client": 60},
        "algorithm": {"local_steps": 2},
        "engine": {"kind": "flower", "threads": 1},
        **sections,
    }


@pytest.mark.slow
def test_the_ledger_is_within_five_percent_of_the_wire(tmp_path: Path) -> None:
    raw = settings(selection={"kind": "ksd"})
    config, _ = resolve(raw, facts_of(load_dataset(raw)))
    app = write_app(tmp_path / "app", {**flatten(config.to_dict()), "out": str(tmp_path / "run")}).parent
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    variables = {"JAX_COMPILATION_CACHE_DIR": cache} if cache else None
    with Fleet(tmp_path / "fleet", variables=variables, patience=120) as fleet:
        fleet.start_link()
        meter = Meter(fleet.port)
        for client in range(CLIENTS):
            node = {"partition-id": client, "state-dir": str(tmp_path / "state" / str(client))}
            fleet.start_node(f"client-{client}", node, through=meter.address)
        fleet.submit(app)
        until(lambda: (tmp_path / "run" / "rounds.jsonl").exists() and lines(tmp_path / "run"), 300)
        up, down = meter.up, meter.down  # without the set-up, and without sites that are all zero: Flower sends one
        until(lambda: (tmp_path / "run" / "summary.json").exists(), 300)
        up, down = meter.up - up, meter.down - down
        meter.close()
    found, happened = lines(tmp_path / "run")[1:], events(tmp_path / "run")
    assert not [entry for entry in happened if entry["event"] == "asked again"], "retries are counted apart"
    assert {entry["event"] for entry in happened} == {"joined", "sums", "set up"}, "and so is the set-up"
    counted_up, counted_down = (sum(line[way] for line in found) for way in ("bytes_up", "bytes_down"))
    print(json.dumps({"up": [up, counted_up], "down": [down, counted_down]}))
    assert down == pytest.approx(counted_down, rel=0.05)
    assert up == pytest.approx(counted_up, rel=0.05)
