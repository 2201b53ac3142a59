"""Import time, first compilation, time to the first round and peak memory, each measured in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from fedstein.errors import FedsteinError
from fedstein.studies.bench.timing import OnCase

SCHEMES = {"BLR": ("data.name=covertype",), "BNN": ("data.name=mnist",)}
CLIENT_COUNTS = (100, 10_000)  # the numbers of clients whose peak memory is compared
MEMORY_ROUNDS, MEMORY_BUDGET = 20, 64  # the rounds, and engine.budget in MiB

IMPORT_SCRIPT = """
import json, sys, time
began = time.perf_counter(); import jax, jax.numpy; jax_done = time.perf_counter()
import fedstein; fedstein_done = time.perf_counter()
fedstein.fit; fit_done = time.perf_counter()
print(json.dumps({"jax": jax_done - began, "fedstein": fedstein_done - jax_done, "fit": fit_done - fedstein_done}))
"""
MEMORY_SCRIPT = """
import json, sys
from fedstein.studies.bench.synthetic_clients import synthetic_federation
from fedstein.federation.protocol import first, run_round
clients, rounds, threads, budget = map(int, sys.argv[1:])
parts = synthetic_federation(clients, 100, threads, budget)
state = first(parts)
for _ in range(rounds):
    state, record = run_round(parts, state)
from fedstein.studies.bench.startup import peak_of
print(json.dumps({"peak": peak_of("self"), "sites": len(state.accepted)}))
"""


class Run(NamedTuple):
    """One ``fedstein run`` of a single round, measured from outside."""

    first_round: float  # seconds until the first round was printed
    whole: float
    peak: int  # bytes


class Startup(NamedTuple):
    """The results of all measurements."""

    imports: dict[str, float]  # seconds, the minimum of the repeats
    cold: dict[str, Run]  # with an empty cache of programs
    warm: dict[str, Run]  # the second run, with the programs of the first one in the cache
    memory_by_clients: dict[int, dict[str, int]]  # peak bytes and the number of clients with a site, by K


def measure_startup(repeats: int, quick: bool, threads: int, on_case: OnCase) -> Startup:
    """Measure imports, first rounds and peak memory.

    Args:
        repeats: How often each measurement is repeated.
        quick: Whether to leave out the BLR and the memory.
        threads: The number of XLA threads.
        on_case: Called with a line of progress.
    """
    on_case("imports")
    found = [json.loads(child(["-c", IMPORT_SCRIPT])) for _ in range(repeats)]
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
    memory_by_clients = {}
    for clients in () if quick else CLIENT_COUNTS:
        on_case(f"memory with {clients} clients")
        words = [str(clients), str(MEMORY_ROUNDS), str(threads), str(MEMORY_BUDGET)]
        memory_by_clients[clients] = json.loads(child(["-c", MEMORY_SCRIPT, *words], NPROC=str(threads)))
    return Startup(imports, cold, warm, memory_by_clients)


def environment(cache: Path | None = None) -> dict[str, str]:
    """Return the environment for a child process, with ``cache`` as its only cache of compiled programs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return kept | ({"FEDSTEIN_CACHE": str(cache)} if cache else {})


def child(words: list[str], **variables: str) -> str:
    """Run a Python process and return what it prints.

    Raises:
        FedsteinError: If the process fails.
    """
    done = subprocess.run([sys.executable, *words], env=environment() | variables, capture_output=True, text=True)
    if done.returncode:
        raise FedsteinError(f"a process of the benchmark failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def first_run(folder: Path, name: str, settings: tuple[str, ...], threads: int) -> Run:
    """Run ``fedstein run`` for one round, with the compiled programs stored in ``folder``.

    Raises:
        FedsteinError: If the run fails.
    """
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
    """Return the peak memory of a running process in bytes, or 0 if the system does not tell.

    The system's number for finished child processes is not usable, because it starts with the memory of their parent.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
