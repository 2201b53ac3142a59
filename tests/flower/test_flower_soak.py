"""A short soak: nodes, computing processes, the link and the server are killed at random, and nothing comes of it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from flower_runs import BNN, in_process, lines, settings
from real import EIGEN, NAMES, Scene, start_fleet

from fedstein.flower.launch.processes import EXEC

pytestmark = pytest.mark.slow
EVERY = 2  # rounds between two kills
CALM = 4  # rounds after the last kill, over which memory and disk are compared
KILLS = ("node", "executor", "link", "server", "executor")


def strike(scene: Scene, what: str, chance: random.Random, raw: dict) -> None:
    """Kill something with ``kill -9``, and start again what does not start by itself."""
    name = chance.choice(NAMES)
    if what == "node":
        scene.fleet.kill_node(name)
        scene.fleet.restart_node(name, wait=False)
    elif what == "executor":
        scene.fleet.kill_apps(name)
    elif what == "link":
        scene.fleet.kill_link()
        scene.fleet.restart_link()
    else:
        scene.fleet.kill_apps(EXEC)
        scene.submit(raw, train_timeout=30.0, report_timeout=30.0)


def memory(groups: list[int]) -> int:
    """Bytes in memory of the processes of these groups."""
    pages = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) in groups:
                    pages += int((entry / "statm").read_text().split()[1])
            except OSError:
                continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def disk(folder: Path) -> int:
    """Bytes of the files that the nodes keep of their runs, and of the link's database."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in (".safetensors", ".db"))


def test_kills_at_random_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(17)
    kills = chance.sample(KILLS, len(KILLS))
    rounds = EVERY * len(kills) + CALM + 2
    raw = settings(BNN, sites=EIGEN, selection={"kind": "hip"}, rounds=rounds)
    with start_fleet(tmp_path / "fleet") as fleet:
        scene = Scene(fleet, tmp_path)
        scene.submit(raw, train_timeout=30.0, report_timeout=30.0)
        for number, what in enumerate(kills):
            scene.after_round(EVERY * number + 1)
            strike(scene, what, chance, raw)
        scene.after_round(rounds - CALM)
        before = memory(fleet.groups(*NAMES, "link")), disk(tmp_path / "fleet")
        scene.after_round(rounds - 1)
        after = memory(fleet.groups(*NAMES, "link")), disk(tmp_path / "fleet")
        found = scene.finish()
    whole = in_process(raw, tmp_path / "whole")
    assert found == lines(whole), "no update was lost, and none counted twice"
    assert (scene.out / "posterior.safetensors").read_bytes() == (whole / "posterior.safetensors").read_bytes()
    assert after[0] < before[0] + 64 * 2**20, "memory stays flat"
    assert after[1] < before[1] + 4 * 2**20, "and so does the disk"
