"""What a terminal shows: one bar, also after Ctrl-C, and an estimate of the time that compiling does not spoil."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest

from fedstein import console
from fedstein.console import COMPILING, progress_lines
from fedstein.progress import MARGIN

# First of all, in the new process: Ctrl-C on the terminal is for it, however the tests were started.
OWN_TERMINAL = """
import fcntl, signal, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
"""
# A process with a bar: a round each .05 s until Ctrl-C asks for the end, as in a run.
SINGLE = """
import signal, time
from fedstein.progress import live_bar
asked = []
signal.signal(signal.SIGINT, lambda *_: asked.append(1))
record = {"round": 0, "accuracy": 0.7512, "nll": 0.5123, "selected": [3]}
with live_bar(1000) as on_round:
    while not asked:
        record["round"] += 1
        on_round(record)
        time.sleep(0.05)
    time.sleep(0.5)  # the round that is under way ends first; the bar is drawn again meanwhile
print("stopped after round", record["round"])
"""
SEVERAL = """
import signal, time
from fedstein.cli.progress import show_share
asked = []
signal.signal(signal.SIGINT, lambda *_: asked.append(1))
with show_share(False) as on_progress:
    share = 0.0
    while not asked:
        share += 0.001
        on_progress(share, "a-run-with-a-rather-long-name-seed0, another-run-with-a-name-as-long-seed1")
        time.sleep(0.05)
    time.sleep(0.5)
print("stopped")
"""


def screen(written: str, columns: int) -> list[str]:
    """The lines that a terminal shows after it was written to: line feeds, wrapping, and what Rich uses to redraw."""
    lines, row, column = [[" "] * columns], 0, 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", written, re.DOTALL):
        if piece.startswith("\x1b["):
            number = int(re.sub(r"\D", "", piece) or 1)
            if piece.endswith("A"):
                row = max(0, row - number)
            elif piece.endswith("K"):
                lines[row] = [" "] * columns  # Rich erases whole lines only: 2K
        elif piece == "\r":
            column = 0
        elif piece == "\n":
            row += 1
        else:
            if column == columns:
                row, column = row + 1, 0
            while len(lines) <= row:
                lines.append([" "] * columns)
            lines[row][column] = piece
            column += 1
        while len(lines) <= row:
            lines.append([" "] * columns)
    return [text for line in lines if (text := "".join(line).rstrip())]


def after_ctrl_c(program: str, columns: int) -> list[str]:
    """Run a program on a terminal, type Ctrl-C after a while, and return what the terminal shows in the end."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", OWN_TERMINAL + program],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm"},
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    os.close(theirs)
    written, typed, end = b"", False, time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                written += os.read(ours, 65536)
            except OSError:  # the process has closed the terminal
                break
        if not typed and written.count(b"\r") > 8:  # the bar has been drawn a few times
            typed = bool(os.write(ours, b"\x03"))  # the terminal prints ^C and sends the signal
    process.wait(timeout=60)
    os.close(ours)
    assert b"^C" in written
    return screen(written.decode(), columns)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "columns"), [(SINGLE, 80), (SEVERAL, 50)])
def test_one_bar_is_left_after_ctrl_c(program: str, columns: int) -> None:
    bar, last = after_ctrl_c(program, columns)  # two lines and no more
    assert last.startswith("stopped")
    assert "^C" not in bar, "the bar was drawn over it"
    assert len(bar) <= columns - MARGIN


def test_the_first_line_with_an_estimate_is_not_far_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of 40 rounds: 8 seconds for the rounds that compile, 9 for the others together."""
    now, said = [0.0], []
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(console, "say", said.append)
    on_round = progress_lines(40)
    left = {}
    for index in range(1, 41):
        now[0] += 4.0 if index <= COMPILING else 9.0 / 38
        on_round({"round": index, "accuracy": 0.5, "nll": 1.0, "selected": [0]})
        if found := re.search(r"(\d+) s left", said[-1]):
            left[index] = int(found[1])
    first = min(left)
    assert first == 4, "no estimate before rounds that do not compile"
    assert left[first] == pytest.approx(9.0 * (40 - first) / 38, abs=1)
