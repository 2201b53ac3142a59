"""A link with TLS and node authentication takes the node that was registered, and no other."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from echo import answers, until, write_echo

from fedstein.flower.launch.certs import make_certificates
from fedstein.flower.launch.environment import program
from fedstein.flower.launch.fleet_types import Tls
from fedstein.flower.launch.processes import Fleet


def fails(fleet: Fleet, name: str) -> str:
    """Wait until the node has given up; what it said."""
    until(lambda: not fleet.running(name))
    return fleet.log(name)


@pytest.mark.slow
def test_only_the_registered_node_gets_in(tmp_path: Path):
    made = make_certificates(tmp_path / "certs", nodes=["north", "stranger"])
    other = make_certificates(tmp_path / "other", nodes=["north"])
    app, out = write_echo(tmp_path / "app"), tmp_path / "out.jsonl"
    with Fleet(tmp_path / "fleet", tls=Tls.of(made.folder), authenticate=True, isolation="subprocess") as fleet:
        fleet.start_link()
        fleet.register(made.public("north"), "north")
        # All at once: the refused ones take their time.
        fleet.start_node("stranger", {"site": "x"}, made.private("stranger"), wait=False)
        fleet.start_node("keyless", {"site": "x"}, wait=False)
        fleet.start_node("plain", {"site": "x"}, plain=True, wait=False)
        fleet.start_node("plain-with-key", {"site": "x"}, made.private("north"), plain=True, wait=False)
        north = fleet.start_node("north", {"site": "north"}, made.private("north"))
        run = fleet.submit(app, {"out": str(out)})

        assert "Failed to activate SuperNode" in fails(fleet, "stranger")
        assert "No SuperNode found with the given public key" in fleet.log("link")
        assert "All SuperNodes must be registered" in fails(fleet, "keyless")
        assert "TLS is not enabled" in fails(fleet, "plain-with-key")
        until(lambda: fleet.log("plain").count("Connection attempt failed") >= 2)  # it would try for ever
        assert [fleet.node_id(name) for name in ("stranger", "keyless", "plain", "plain-with-key")] == [None] * 4
        fleet.stop_node("plain")

        # The link knows one node, and the run, encrypted from end to end, has its answer alone.
        assert [(int(node["node-id"]), node["status"]) for node in fleet.nodes()] == [(north, "online")]
        assert [answer["site"] for answer in until(lambda: answers(out))] == ["north"]
        assert fleet.wait(run, 60) == "finished:completed"

        with socket.create_connection(("127.0.0.1", fleet.port)) as plain:
            plain.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP")
        # A client that trusts another CA does not talk to this link.
        context = ssl.create_default_context(cafile=other.ca)
        with socket.create_connection(("127.0.0.1", fleet.port)) as raw, pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(raw, server_hostname="localhost")
        # Nor is a server process handed to whoever asks: that takes the SuperExec's secret.
        secret = tmp_path / "guess"
        secret.write_text("guess")
        command = [program("flower-superexec"), "--root-certificates", made.ca]
        command += ["--runtime-api-address", fleet.address, "--superexec-auth-secret-file", secret]
        fleet._start("intruder", command)
        until(lambda: "SuperExec authentication failed" in fleet.log("link"))
