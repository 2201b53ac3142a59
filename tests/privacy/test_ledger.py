"""The ledger: spent before it is sent, across runs, and whole after kill -9 before and after a release."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedstein.errors import InputError
from fedstein.privacy.accounting import mu_of
from fedstein.privacy.guard import Guard, Unprotected
from fedstein.privacy.ledger import BudgetSpent, Ledger, Release
from fedstein.privacy.settings import PrivacySettings

SETTINGS = PrivacySettings(kind="record", epsilon=1.0, delta=1e-5, visits=2, split=0.5)
SUMS = {"gradient": np.ones(2), "moments": np.eye(2)}
BOUNDS = {"gradient": 1.0, "moments": 1.0}


def guard(folder: Path, run: str = "a", **more: object) -> Guard:
    return Guard(SETTINGS, b"k" * 32, folder=folder, run=run, single=True, **more)  # type: ignore[arg-type]


def test_the_plan_fits_the_budget_and_no_more_does(tmp_path: Path) -> None:
    here = guard(tmp_path)
    first = here.release(0, 0, SUMS, BOUNDS)
    here.release(0, 1, {"gradient": np.ones(2)}, BOUNDS)
    assert here.ledger(0).spent == pytest.approx(1.0)
    with pytest.raises(Unprotected, match="that often already"):
        here.release(0, 2, {"gradient": np.ones(2)}, BOUNDS)
    # The same release again, in a new process: the same numbers, and nothing more is spent.
    again = guard(tmp_path).release(0, 0, SUMS, BOUNDS)
    np.testing.assert_array_equal(again["gradient"], first["gradient"])
    # A later run on the same rows is refused, whatever budget it brings.
    with pytest.raises(BudgetSpent, match=r"to 1\.\d+ at delta 1e-05, and its budget is 1; nothing was released"):
        guard(tmp_path, "b").release(0, 0, SUMS, BOUNDS)
    with pytest.raises(BudgetSpent):
        Guard(SETTINGS.model_copy(update={"epsilon": 50.0}), b"k" * 32, folder=tmp_path, run="c", single=True).release(
            0, 0, SUMS, BOUNDS
        )
    # The operator's own word is another thing.
    guard(tmp_path, "b", budget=(2.0, 1e-5)).release(0, 0, SUMS, BOUNDS)


def test_another_sum_or_scale_gets_other_noise(tmp_path: Path) -> None:
    wide = PrivacySettings(kind="record", epsilon=50.0, visits=5)
    here = Guard(wide, b"k" * 32, folder=tmp_path)
    one = here.release(0, 0, {"gradient": np.zeros(3)}, BOUNDS)["gradient"]
    two = here.release(0, 0, {"gradient": np.full(3, 1e-9)}, BOUNDS)["gradient"]
    scaled = here.release(0, 0, {"gradient": np.zeros(3)}, {"gradient": 2.0})["gradient"]
    assert np.all(np.abs(one - two) > 1e-3)
    assert not np.allclose(scaled, 2 * one)
    assert len(here.ledger(0).entries) == 3


def test_without_a_secret_nothing_is_released() -> None:
    with pytest.raises(Unprotected, match="secret"):
        Guard(SETTINGS).release(0, 0, SUMS, BOUNDS)


def test_a_damaged_ledger_releases_nothing(tmp_path: Path) -> None:
    guard(tmp_path).release(0, 0, SUMS, BOUNDS)
    path = tmp_path / "ledger.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"id": "torn')  # a line that was never finished was never answered for
    assert len(Ledger(path, 1.0, 1e-5).entries) == 2
    assert path.read_text() == whole
    path.write_text("{}\n" + whole)
    with pytest.raises(InputError, match="damaged"):
        guard(tmp_path).release(0, 1, SUMS, BOUNDS)
    path.write_text(whole)
    with pytest.raises(InputError, match="counts at delta"):
        Ledger(path, 1.0, 1e-6)


CHILD = """
import os, signal, sys
from pathlib import Path
import fedstein.privacy.ledger as ledger
when, folder = sys.argv[1], Path(sys.argv[2])
real = os.fsync
def killed(handle):
    if when == "before" and os.readlink(f"/proc/self/fd/{handle}").endswith("ledger.jsonl"):
        os.kill(os.getpid(), signal.SIGKILL)
    real(handle)
ledger.os.fsync = killed
book = ledger.Ledger(folder / "ledger.jsonl", 1.0, 1e-5)
book.charge([ledger.Release("id", "gradient", 10.0, "run", 0, 0)])
print("sent", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_9_around_a_release(tmp_path: Path, when: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, when, str(tmp_path)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    book = Ledger(tmp_path / "ledger.jsonl", 1.0, 1e-5)
    # Whatever was sent is in the ledger. Without a power cut, a line that was written but not synced is there as well.
    assert done.stdout == ("sent\n" if when == "after" else "")
    assert len(book.entries) == 1
    assert book.mu == pytest.approx(0.1)
    book.charge([Release("id", "gradient", 10.0, "run", 0, 0)])
    assert len((tmp_path / "ledger.jsonl").read_text().splitlines()) == 2
    assert json.loads((tmp_path / "ledger.jsonl").read_text().splitlines()[0])["epsilon"] == 1.0
    assert mu_of(1.0, 1e-5) > book.mu
