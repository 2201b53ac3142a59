"""A real link and real nodes: they answer, they are killed and come back, and nothing of them is left."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from echo import answers, until, write_echo

from fedstein.cli import main
from fedstein.errors import FedsteinError, InputError
from fedstein.flower.launch import environment, processes, watchdog
from fedstein.flower.launch.fleet_types import EndedEarly
from fedstein.flower.launch.processes import Fleet


@pytest.mark.slow
def test_a_fleet_answers_through_kills_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")  # ours is off whatever the user has
    app, out, site = write_echo(tmp_path / "app"), tmp_path / "out.jsonl", "a \"b\" 'c'\\"
    groups: set[int] = set()
    with Fleet(tmp_path / "fleet", threads=3, isolation="subprocess") as fleet:
        fleet.start_link()
        first = fleet.start_node("a", {"site": site})
        run = fleet.submit(app, {"out": str(out), "rounds": 50})
        answer = until(lambda: answers(out))[0]
        assert answer["site"] == site
        assert (answer["FLWR_TELEMETRY_ENABLED"], answer["NPROC"]) == ("0", "3")
        assert answer["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "fleet" / "jax-cache")
        assert fleet.status(run) == "running"

        groups |= set(fleet.groups())
        fleet.kill_link()
        assert not fleet.running("link")
        assert fleet.running("superexec")
        before = len(answers(out))
        fleet.restart_link()
        until(lambda: len(answers(out)) > before, 180)  # the run goes on, with a message that was not lost

        groups |= set(fleet.groups())
        assert fleet.kill_apps("superexec") == 1  # the server process
        fleet.kill_node("a")
        assert not fleet.running("a")
        assert fleet.restart_node("a") != first
        assert {node["status"] for node in fleet.nodes()} == {"online"}  # the link has not missed the old one yet
        fleet.stop(run)
        assert fleet.status(run) in ("finished:stopped", "finished:failed")  # failed: the link missed it before
        fleet.stop(run)  # once more does no harm
        groups |= set(fleet.groups())
        assert len(groups) == 5  # link, superexec and node; the link again; the node again
    assert watchdog.members(groups) == []


@pytest.mark.slow
def test_what_a_program_says_is_quoted_when_it_fails(tmp_path: Path):
    with Fleet(tmp_path) as fleet:
        (tmp_path / "link.db").mkdir()  # no database can be there
        with pytest.raises(EndedEarly, match="link ended before it could take connections") as caught:
            fleet.start_link()
        assert "link.db" in str(caught.value) or "database" in str(caught.value)
        assert fleet.groups() == []


@pytest.mark.slow
def test_a_port_that_was_taken_meanwhile_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as other:
        other.bind((environment.HOST, 0))
        other.listen()
        taken = other.getsockname()[1]
        ports = iter([taken, environment.free_port()])
        monkeypatch.setattr(processes, "free_port", lambda: next(ports))
        with Fleet(tmp_path) as fleet:
            fleet.start_link()
            assert fleet.port != taken


def test_flower_must_be_installed_beside_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(InputError, match=r"fedstein\[flower\]"), Fleet(tmp_path / "fleet"):
        pass


def test_a_fleet_is_used_in_a_block_and_names_are_plain(tmp_path: Path):
    with pytest.raises(FedsteinError, match="with block"):
        Fleet(tmp_path).start_link()
    with pytest.raises(InputError, match="TLS"):
        Fleet(tmp_path, authenticate=True)
    with Fleet(tmp_path) as fleet:
        for name in ("link", "../x", ""):
            with pytest.raises(InputError, match="node name"):
                fleet.start_node(name, {})


def test_deploy_without_flower_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("fedstein.cli.deploy_app.find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["fedstein", "deploy", "demo"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "pip install 'fedstein[flower]'" in capsys.readouterr().err
