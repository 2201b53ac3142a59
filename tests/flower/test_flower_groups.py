"""Nothing that was started outlives us: not its children, not if it refuses to stop, not if we are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from echo import until

from fedstein.flower.launch import watchdog
from fedstein.flower.launch.groups import Supervisor

# A program with a child, as a SuperNode has client processes; both say when they are there.
FAMILY = """
import signal, subprocess, sys, time
{prelude}
if len(sys.argv) < 2:
    subprocess.Popen([sys.executable, "-c", sys.orig_argv[2], "child"])
print("up", flush=True)
time.sleep(600)
"""
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"

OWNER = """
import signal, sys, time
from pathlib import Path
from fedstein.flower.launch.groups import Supervisor
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would we
owner = Supervisor()
program = owner.start("x", [sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]), {})
print(program.group, flush=True)
time.sleep(600)
"""


def family(prelude: str = "") -> str:
    return FAMILY.format(prelude=prelude)


def both_up(log: Path) -> bool:
    return log.exists() and log.read_text().count("up") == 2


@pytest.mark.parametrize("prelude", ["", STUBBORN], ids=["obedient", "stubborn"])
def test_stopping_reaches_children_and_the_stubborn(tmp_path: Path, prelude: str):
    supervisor, log = Supervisor(), tmp_path / "x.log"
    program = supervisor.start("x", [sys.executable, "-c", family(prelude)], log, {})
    until(lambda: both_up(log))
    assert len(watchdog.members([program.group])) == 2
    supervisor.stop(program, grace=0.3)
    assert watchdog.members([program.group]) == []
    supervisor.close()


def test_closing_ends_everything_and_the_watchdog(tmp_path: Path):
    supervisor = Supervisor()
    programs = [
        supervisor.start(name, [sys.executable, "-c", family()], tmp_path / f"{name}.log", {}) for name in ("a", "b")
    ]
    until(lambda: both_up(tmp_path / "a.log") and both_up(tmp_path / "b.log"))
    supervisor.close()
    assert watchdog.members([program.group for program in programs]) == []
    assert supervisor._watchdog.returncode == 0


@pytest.mark.parametrize(("number", "prelude"), [(signal.SIGKILL, STUBBORN), (signal.SIGTERM, ""), (signal.SIGINT, "")])
def test_nothing_survives_whoever_started_it(tmp_path: Path, number: int, prelude: str):
    log = tmp_path / "x.log"
    command = [sys.executable, "-c", OWNER, family(prelude), str(log)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert owner.stdout is not None
    group = int(owner.stdout.readline())
    until(lambda: both_up(log))
    owner.send_signal(number)
    owner.wait(10)
    owner.stdout.close()
    until(lambda: not watchdog.members([group]))


def test_output_is_that_of_the_last_start(tmp_path: Path):
    supervisor, log = Supervisor(), tmp_path / "x.log"
    for word in ("first", "second"):
        program = supervisor.start("x", [sys.executable, "-c", f"print({word!r})"], log, {})
        until(lambda one=program: not one.running())
        assert program.output() == f"{word}\n"
    assert log.read_text() == "first\nsecond\n"
    supervisor.close()


def test_members_count_no_zombies():
    child = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    until(lambda: not watchdog.members([child.pid]))  # ended and not yet waited for
    assert child.wait() == 0
    assert os.getpid() in watchdog.members([os.getpgid(0)])
