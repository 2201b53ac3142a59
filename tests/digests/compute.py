"""Compute the digests of the table in ``cases.py``; ``compare.py`` compares them with those that are written down.

    python tests/digests/compute.py                     say which cases differ from digests.json
    python tests/digests/compute.py --write             write digests.json anew; with --only, these cases of it
    python tests/digests/compute.py --only 'dsvgd/*'    only the cases whose names match
    python tests/digests/compute.py --reverse           in the opposite order, to show that it does not matter

Every case goes through the command line or ``fedstein.fit`` and is read from its run folder; ``over_flower.py`` alone
knows the inside of the package. The cases run one after another, many to a process, with one thread; each process has
one precision. The package that is measured is the one beside this file.

A digest is the start of a SHA-256: of each line of ``rounds.jsonl`` without its seconds, of the bytes of the particles
in ``posterior.safetensors``, and of what else the run leaves that is computed. Bits depend on the machine and on
versions, which is why ``digests.json`` holds those too; where they differ, the rounded numbers beside each digest are
compared instead.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import io
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

if __package__:  # started as a module
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import CASES, Case, nested
from compare import DIGESTS, Document, judge, merged, read, write
from over_flower import run_over_flower

HERE = Path(__file__).resolve().parent
THREADS = "1"
PACKAGES = ("jax", "jaxlib", "numpy", "safetensors", "scikit-learn", "scipy")
METRICS = ("accuracy", "nll", "brier", "rmse")  # those without bins, which a last bit can fill differently
FORGOTTEN = 1  # the client that is forgotten
TOGETHER = 80  # cases to a process
LENGTH = 16  # characters of a SHA-256 that are kept

# What is compared -----------------------------------------------------------------------------------------------------


def fingerprint() -> dict[str, str]:
    """What the bits of a result depend on besides the code."""
    model, flags = platform.processor() or platform.machine(), ""
    with contextlib.suppress(OSError):
        facts = dict(
            tuple(part.strip() for part in line.split(":", 1))
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if ":" in line
        )
        model, flags = facts.get("model name", model), facts.get("flags", facts.get("Features", ""))
    return {
        **{name: metadata.version(name) for name in PACKAGES},
        "cpu": model,
        "cpu_flags": short(" ".join(sorted(flags.split())).encode()),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "threads": THREADS,
    }


def short(content: bytes) -> str:
    """The start of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:LENGTH]


def timeless(value: Any) -> Any:
    """The value without what a clock has measured."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "seconds"}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def of_json(value: Any) -> str:
    """The digest of the canonical JSON."""
    return short(json.dumps(timeless(value), sort_keys=True, separators=(",", ":")).encode())


def of_array(array: Any) -> str:
    """The digest of the type, the shape and the bytes."""
    return short(f"{array.dtype} {array.shape} ".encode() + array.tobytes())


def rounded(number: Any) -> float | None:
    return None if number is None or not math.isfinite(number) else float(f"{number:.6g}")


def near(last: dict[str, Any], particles: Any) -> dict[str, Any]:
    """Numbers that last bits hardly move: the final metrics, and the mean of the particles in few words."""
    wide = particles.astype("float64")
    mean = wide.mean(axis=0)
    return {
        "metrics": {name: rounded(last[name]) for name in METRICS if last.get(name) is not None},
        "particles": [rounded(x) for x in (mean.mean(), (mean**2).mean() ** 0.5, wide.std(axis=0).mean(), *mean[:3])],
    }


def read_folder(folder: Path) -> dict[str, Any]:
    """The digests of a finished run."""
    from safetensors.numpy import load_file

    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    particles = load_file(folder / "posterior.safetensors")["particles"]
    found: dict[str, Any] = {"rounds": [of_json(line) for line in lines], "particles": of_array(particles)}
    for name in ("gaussian", "basis"):
        if (path := folder / f"{name}.safetensors").exists():
            found[name] = short("".join(f"{k} {of_array(a)} " for k, a in sorted(load_file(path).items())).encode())
    for name in ("summary", "clients-evaluation"):
        if (path := folder / f"{name}.json").exists():
            found[name] = of_json(json.loads(path.read_text()))
    return {**found, "near": near(lines[-1], particles)}


# How a case is run ----------------------------------------------------------------------------------------------------


class StopAfter(io.StringIO):
    """Standard output that asks for a stop, as Ctrl-C does, when the line of that round is printed."""

    def __init__(self, beginning: str):
        super().__init__()
        self.beginning, self.asked = beginning, False

    def write(self, text: str) -> int:
        if text.startswith(self.beginning) and not self.asked:
            self.asked = True
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def call(arguments: Sequence[str | Path], code: int = 0, out: io.StringIO | None = None) -> None:
    """``fedstein`` with these arguments, in this process; what is not used by a case is an error of the case."""
    from fedstein.cli import main

    said = io.StringIO()
    with contextlib.redirect_stdout(out or io.StringIO()), contextlib.redirect_stderr(said):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            ended = stop.code or 0
    assert ended == code, f"fedstein ended with {ended}: {said.getvalue()}"
    assert "note:" not in said.getvalue(), said.getvalue()


def arguments_of(case: Case) -> list[str]:
    return [*(part for setting in case.settings for part in ("--set", setting)), *case.words]


def run(case: Case, place: Path) -> dict[str, Any]:
    """A run from its first round to its last."""
    call(["run", "--quiet", "--out", place / "run", *arguments_of(case)])
    return read_folder(place / "run")


def resume(case: Case, place: Path) -> dict[str, Any]:
    """A run that is stopped after two rounds of four and goes on."""
    call(["run", "--out", place / "run", *arguments_of(case)], 1, StopAfter("round 2/"))
    assert len((place / "run" / "rounds.jsonl").read_text().splitlines()) == 2
    call(["resume", "--quiet", place / "run"])
    return read_folder(place / "run")


def forget(case: Case, place: Path) -> dict[str, Any]:
    """A run without one of its clients, which had trained."""
    call(["run", "--quiet", "--out", place / "run", *arguments_of(case)])
    call(["forget", "--quiet", place / "run", "--client", str(FORGOTTEN), "--out", place / "rest"])
    return read_folder(place / "rest")


def over_flower(case: Case, place: Path) -> dict[str, Any]:
    """A run over messages."""
    run_over_flower(nested(case.settings), place / "run", place / "nodes")
    return read_folder(place / "run")


def made_rows(task: str, classes: int, double: bool, unequal: bool) -> list[tuple[Any, Any]]:
    """Four clients with rows that are the same every time, and rows for testing; every size is compiled for."""
    import numpy as np

    draw, made = np.random.default_rng(5), []
    sizes = (7, 16, 10, 16, 30) if unequal else (16, 16, 16, 16, 30)
    for count, shift in zip(sizes, (-1.0, -0.5, 0.5, 1.0, 0.0), strict=True):
        x = draw.normal(shift, 1.0, (count, 3)).astype(np.float64 if double else np.float32)
        noise = 0.5 * draw.normal(size=count)
        value = x.sum(axis=1) + noise
        y = value.astype(x.dtype) if task == "regression" else np.digitize(value, range(classes - 1))
        made.append((x, y))
    return made


@cache
def own_model() -> Any:
    """Logistic regression with a Laplace prior, made smooth: a model that no registry knows, made and compiled once."""
    import jax
    import jax.numpy as jnp

    import fedstein

    def predict(theta: Any, x: Any) -> Any:
        logit = x @ theta[:3] + theta[3]
        return jnp.stack([-jax.nn.softplus(logit), -jax.nn.softplus(-logit)], axis=1)

    return fedstein.models.custom(
        4,
        log_prior=lambda theta: -jnp.sum(jnp.sqrt(1.0 + theta**2)),
        log_likelihood=lambda theta, x, y: jnp.where(y == 1, predict(theta, x)[:, 1], predict(theta, x)[:, 0]),
        init=lambda key: jax.random.normal(key, (4,)),
        predict=predict,
        classes=2,
        name="smooth_laplace",
    )


def fit(case: Case, place: Path) -> dict[str, Any]:
    """``fedstein.fit`` with a model of one's own, or with the one that the case names."""
    import jax

    import fedstein

    jax.config.update("jax_enable_x64", case.double)
    name = case.words[0] if case.words else ""
    task, classes = ("regression", 0) if name == "bnn_regressor" else ("classification", 3 if "bnn" in name else 2)
    model = name or own_model()
    *clients, test = made_rows(task, classes, case.double, unequal=bool(name))
    settings = nested(case.settings)
    by_clients = settings.get("evaluate", {}).get("where") == "clients"
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = fedstein.fit(
            model, clients, test=None if by_clients else test, standardise=False, settings=settings
        )  # the digests are of rows as they come
    read: dict[str, Any] = {
        "rounds": [of_json(line) for line in found.rounds],
        "particles": of_array(found.particles),
        "predictions": of_array(found.predict(test[0])),
    }
    if found.gaussian is not None:
        read["gaussian"] = of_array(found.predict(test[0], using="gaussian"))
    if found.clients is not None:
        read["clients-evaluation"] = of_json(found.clients)
    return {**read, "near": near(found.rounds[-1], found.particles)}


WAYS: dict[str, Callable[[Case, Path], dict[str, Any]]] = {
    "run": run,
    "resume": resume,
    "forget": forget,
    "fit": fit,
    "flower": over_flower,
}


# Processes ------------------------------------------------------------------------------------------------------------


def compute_here(names: Sequence[str], out: Path) -> None:
    """The child's part: compute these cases one after another and write what was found."""
    found: dict[str, Any] = {}
    for name in names:
        began = time.process_time()  # others may be at work on the same cores
        with tempfile.TemporaryDirectory(prefix="fedstein-digest-") as place:
            try:
                found[name] = WAYS[CASES[name].way](CASES[name], Path(place))
            except Exception as problem:
                found[name] = {"failed": f"{type(problem).__name__}: {problem}"}
        found[name]["seconds"] = round(time.process_time() - began, 2)
    out.write_text(json.dumps(found))


def shares(names: Sequence[str]) -> list[list[str]]:
    """The names for one process each: of one precision, and not too many."""
    kinds = [[name for name in names if CASES[name].double == double] for double in (False, True)]
    made = []
    for kind in kinds:
        size = math.ceil(len(kind) / max(1, math.ceil(len(kind) / TOGETHER)))  # of about the same number each
        made += [kind[start : start + size] for start in range(0, len(kind), max(1, size))]
    return made


def compute(names: Iterable[str], on_share: Callable[[Document], None] = lambda found: None) -> Document:
    """The digests of these cases, computed in their order, one process after another; each one's are told at once."""
    names = list(names)
    threads = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # NumPy's products have bits too
    path = os.pathsep.join(filter(None, [str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]))
    variables = {**dict.fromkeys(threads, THREADS), "PYTHONPATH": path, "FLWR_TELEMETRY_ENABLED": "0"}
    variables |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "0"}
    found: dict[str, Any] = {}
    for chosen in shares(names):
        with tempfile.TemporaryDirectory(prefix="fedstein-digests-") as place:
            wanted, out = Path(place) / "names.json", Path(place) / "found.json"
            wanted.write_text(json.dumps(chosen))
            command = [sys.executable, str(HERE / "compute.py"), "--child", str(wanted), str(out)]
            subprocess.run(command, env={**os.environ, **variables}, check=True)
            found |= json.loads(out.read_text())
        on_share({"fingerprint": fingerprint(), "cases": found})
    return {"fingerprint": fingerprint(), "cases": found}


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--write", action="store_true", help="write digests.json anew")
    reader.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="cases whose names match one")
    reader.add_argument("--reverse", action="store_true", help="in the opposite order")
    reader.add_argument("--slowest", type=int, default=0, metavar="N", help="name the cases that took longest")
    reader.add_argument("--child", nargs=2, type=Path, metavar=("NAMES", "OUT"), help=argparse.SUPPRESS)
    chosen = reader.parse_args()
    if chosen.child:
        compute_here(json.loads(chosen.child[0].read_text()), chosen.child[1])
        return
    names = [name for name in CASES if any(fnmatch.fnmatchcase(name, pattern) for pattern in chosen.only)]
    began = time.perf_counter()
    expected = read() if DIGESTS.exists() else {"fingerprint": {}, "cases": {}}

    def on_share(found: Document) -> None:
        print(f"{len(found['cases'])} of {len(names)} cases", flush=True)
        if chosen.write:
            write(merged(found, expected))

    found = compute(reversed(names) if chosen.reverse else names, on_share)
    busy = sum(entry["seconds"] for entry in found["cases"].values())
    print(f"{len(names)} cases in {time.perf_counter() - began:.0f} s, {busy:.0f} s of one core without starting up")
    for name in sorted(names, key=lambda name: -found["cases"][name]["seconds"])[: chosen.slowest]:
        print(f"{found['cases'][name]['seconds']:6.2f} s  {name}")
    failed = [f"{name}: {entry['failed']}" for name, entry in found["cases"].items() if "failed" in entry]
    if chosen.write:
        missing = [name for name in CASES if name not in read()["cases"]]
        sys.exit("\n".join([*failed, f"{len(missing)} cases are not written down yet"]) if failed or missing else 0)
    for key, value in found["fingerprint"].items():
        if value != expected["fingerprint"].get(key):
            print(f"{key} is {value}, was {expected['fingerprint'].get(key)}: numbers are compared, not bits")
    differing = judge(found, expected)
    print("\n".join(differing) if differing else "none differs")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
