"""A node's state on its disk: killed at any point, and whatever order messages come in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.errors import InputError
from fedstein.flower.messages import digest
from fedstein.flower.node.store import NOTHING, Kept, OutOfSync, Store

WRITER = """
import sys
from pathlib import Path
import numpy as np
from fedstein.flower.messages import digest
from fedstein.flower.node.store import Kept, Store

store, log = Store(Path(sys.argv[1]), "run", 0), open(sys.argv[2], "a")
last = store.read(store.committed_file)
number = last.round if last else 0
while True:
    number += 1
    update = {"x": np.full(60_000, number, np.float32)}
    receipt = digest(update)
    with store.locked():
        store.write_pending(Kept(number, receipt, "asked", {"site": update["x"] * 2}, update))
    print(f"pending {number} {receipt}", file=log, flush=True)
    with store.locked():
        store.sync(receipt)
    print(f"committed {number} {receipt}", file=log, flush=True)
"""


def test_killed_at_any_point_the_state_is_whole_and_never_older_than_what_was_said(tmp_path: Path) -> None:
    """Kill -9 at moments spread over the writes; every file is a whole one, and what was announced is there."""
    log = tmp_path / "log"
    log.touch()
    store = Store(tmp_path / "state", "run", 0)
    for attempt in range(12):
        before = log.stat().st_size
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "state"), str(log)])
        try:
            end = time.monotonic() + 60
            while log.stat().st_size == before and time.monotonic() < end:
                time.sleep(0.001)
            time.sleep(0.0017 * attempt)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        said = log.read_bytes().rpartition(b"\n")[0].decode().splitlines()
        what, number, receipt = said[-1].split()
        committed, pending = store.read(store.committed_file), store.read(store.pending_file)
        # What was said last is on the disk, as pending or committed, or the next one has replaced it since.
        known = {kept.round: kept for kept in (committed, pending) if kept}
        assert max(known) >= int(number)
        if what == "committed":
            assert committed is not None
            assert committed.round >= int(number)
        for kept in known.values():
            assert kept.receipt == digest(kept.update)
            assert (kept.state["site"] == 2 * kept.round).all()
        if int(number) in known:  # the server's word decides which of the two it is
            assert (store.sync(receipt)["site"] == 2 * int(number)).all()  # type: ignore[index]


def site(number: int) -> Kept:
    update = {"x": np.array([number], np.float32)}
    return Kept(number, digest(update), f"asked {number}", {"site": update["x"]}, update)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["train", "accept", "lose reply", "restart"]), st.booleans()), max_size=12))
def test_a_site_never_disagrees_with_what_the_server_accepted(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool]]
) -> None:
    """Whatever is lost, the node's site is the server's, or the node says that it has another."""
    folder = tmp_path_factory.mktemp("state")
    store, accepted, number, offered = Store(folder, "run", 0), NOTHING, 0, None
    for step, waits in steps:
        if step == "train":
            number += 0 if waits and offered else 1
            store.sync(accepted)
            store.write_pending(site(number))
            offered = site(number)
        elif step == "accept" and offered:
            accepted, offered = offered.receipt, None
        elif step == "lose reply":
            offered = None
        else:
            store = Store(folder, "run", 0)
        found = store.sync(accepted)
        assert (digest({"x": found["site"]}) if found else NOTHING) == accepted


def test_a_foreign_site_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path, "run", 0)
    store.write_pending(site(1))
    with pytest.raises(OutOfSync, match="another site than this node has"):
        store.sync(site(2).receipt)
    (tmp_path / "other").mkdir()
    os.replace(store.pending_file, tmp_path / "other" / "pending.safetensors")
    with pytest.raises(InputError, match="foreign"):
        Store(tmp_path, "other", 0).pending()
