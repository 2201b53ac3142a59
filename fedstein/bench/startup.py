"""Import, first compile, time to the first round and peak memory: each in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from fedstein.bench.clock import OnCase
from fedstein.errors import FedsteinError

SCHEMES = {"BLR": ("data.name=covertype",), "BNN": ("data.name=mnist",)}
CROWDS = (100, 10_000)  # clients whose peak memory is compared
CROWD_ROUNDS, CROWD_BUDGET = 20, 64  # and MiB

IMPORTS = """
import json, sys, time
began = time.perf_counter(); import jax, jax.numpy; jax_done = time.perf_counter()
import fedstein; fedstein_done = time.perf_counter()
fedstein.fit; fit_done = time.perf_counter()
print(json.dumps({"jax": jax_done - began, "fedstein": fedstein_done - jax_done, "fit": fit_done - fedstein_done}))
"""
CROWD = """
import json, sys
from fedstein.bench.crowd import crowd
from fedstein.protocol import first, play_round
clients, rounds, threads, budget = map(int, sys.argv[1:])
parts = crowd(clients, 100, threads, budget)
state = first(parts)
for _ in range(rounds):
    state, record = play_round(parts, state)
from fedstein.bench.startup import peak_of
print(json.dumps({"peak": peak_of("self"), "sites": len(state.accepted)}))
"""


class Run(NamedTuple):
    """One ``fedstein run`` of a single round, from the shell's point of view."""

    first_round: float  # seconds until its first round was reported
    whole: float
    peak: int  # bytes


class Startup(NamedTuple):
    imports: dict[str, float]  # seconds, the least of the repeats
    cold: dict[str, Run]  # no program was ever compiled
    warm: dict[str, Run]  # the second run, with the programs of the first
    crowds: dict[int, dict[str, int]]  # peak bytes and clients that had a site, by K


def measure_startup(repeats: int, quick: bool, threads: int, on_case: OnCase) -> Startup:
    on_case("imports")
    found = [json.loads(child(["-c", IMPORTS])) for _ in range(repeats)]
    imports = {name: min(each[name] for each in found) for name in found[0]}
    cold, warm = {}, {}
    for name, settings in SCHEMES.items():
        if quick and name != "BNN":
            continue
        on_case(f"first round: {name}")
        colds, warms = [], []
        for _ in range(1 if quick else min(repeats, 3)):
            with tempfile.TemporaryDirectory(prefix="fedstein-bench-") as folder:
                colds.append(first_run(Path(folder), "1", settings, threads))
                warms.append(first_run(Path(folder), "2", settings, threads))
        cold[name], warm[name] = (min(runs, key=lambda run: run.first_round) for runs in (colds, warms))
    crowds = {}
    for clients in () if quick else CROWDS:
        on_case(f"memory with {clients} clients")
        words = [str(clients), str(CROWD_ROUNDS), str(threads), str(CROWD_BUDGET)]
        crowds[clients] = json.loads(child(["-c", CROWD, *words], NPROC=str(threads)))
    return Startup(imports, cold, warm, crowds)


def environment(cache: Path | None = None) -> dict[str, str]:
    """This process's, without what would give a child a cache of programs other than ``cache``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return kept | ({"FEDSTEIN_CACHE": str(cache)} if cache else {})


def child(words: list[str], **variables: str) -> str:
    done = subprocess.run([sys.executable, *words], env=environment() | variables, capture_output=True, text=True)
    if done.returncode:
        raise FedsteinError(f"a process of the benchmark failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def first_run(folder: Path, name: str, settings: tuple[str, ...], threads: int) -> Run:
    """``fedstein run`` for one round, with the programs kept in ``folder``."""
    words = [sys.executable, "-m", "fedstein", "run", "--out", str(folder / name)]
    for setting in (*settings, "rounds=1", f"engine.threads={threads}"):
        words += ["--set", setting]
    began, seen = time.perf_counter(), 0.0
    process = subprocess.Popen(
        words, env=environment(folder / "cache"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    peak = 0
    for line in process.stdout:
        if line.startswith("round 1/") and not seen:
            seen = time.perf_counter() - began
        peak = max(peak, peak_of(process.pid))
    complaint = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    if process.wait() or not seen:
        raise FedsteinError(f"a run of the benchmark failed: {complaint.strip()[-500:]}")
    return Run(seen, time.perf_counter() - began, peak)


def peak_of(process: int | str) -> int:
    """The most memory that a process has had so far, in bytes; 0 where the system does not say.

    Not what the system says of children that have ended: that starts with what their parent had when it made them.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
