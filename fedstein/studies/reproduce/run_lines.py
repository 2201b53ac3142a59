"""One line for each run, with the numbers that the claims need. One CSV file collects the lines of several machines.

A run folder with its curves takes megabytes, its line 80 characters. Lines are kept in the repository
(``experiments/orders/runs.csv``); ``fedstein reproduce --known FILE`` does not run again what has a line there, and
judges the claims from its lines and the new ones together.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from fedstein.errors import InputError
from fedstein.files import disk_errors, write_bytes
from fedstein.report.load import Run
from fedstein.studies.reproduce.claims import BUDGETS, CLAIMS, MEASURES, MORE_CLAIMS, measure, measured
from fedstein.studies.reproduce.plan import SETTINGS, Job

KEYS = ("order", "density", "setting", "scheme", "seed", "rounds")
HEAD = (*KEYS, *MEASURES)
DIGITS = 6


class RunKey(NamedTuple):
    """The key that identifies a run."""

    order: str
    density: str  # empty for curvature sites
    setting: str
    scheme: str
    seed: int
    rounds: int


Lines = dict[RunKey, dict[str, float]]  # what was measured, a key of MEASURES each; what a run has not is left out


def key_of(job: Job) -> RunKey:
    """Return the key of a job's line."""
    return RunKey(job.order, job.density, job.setting, job.variant, job.seed, job.rounds)


def measure_runs(runs: Mapping[Job, Run]) -> Lines:
    """Measure runs.

    Args:
        runs: The runs by job. What is measured up to an equal budget needs the other run of the same seed and order
            too, and is left out if that is not among them.

    Returns:
        Their lines.
    """
    lines: Lines = {}
    for job, run in runs.items():
        values = {name: measure(run, name) for name in MEASURES if name not in BUDGETS}
        lines[key_of(job)] = {name: value for name, value in values.items() if value is not None}
    by_key = {key_of(job): run for job, run in runs.items()}
    for claim in (*CLAIMS, *MORE_CLAIMS):
        if claim.measure not in BUDGETS:
            continue
        for key, run in by_key.items():
            for mine, other in ((claim.first, claim.second), (claim.second, claim.first)):
                if (key.setting, key.scheme) != (claim.setting, mine):
                    continue
                rival = by_key.get(key._replace(scheme=other))
                if rival is not None and (value := measured(claim, [run], [rival]).get(run.seed)) is not None:
                    lines[key][claim.measure] = value
    return lines


def merge_lines(known: Lines, new: Lines) -> Lines:
    """Put lines together; a run that is in both has the new line, with what only the old one measured."""
    return {key: {**known.get(key, {}), **new.get(key, {})} for key in sorted({*known, *new})}


def read_lines(path: Path) -> Lines:
    """Read a file of lines.

    Args:
        path: The file.

    Returns:
        The lines.

    Raises:
        InputError: It cannot be read, a column is missing, a value is not a number, or a run is there twice.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as problem:
        raise InputError(f"cannot read {path}: {problem.strerror or problem}") from None
    reader = csv.DictReader(io.StringIO(text))
    missing = [
        name for name in ("order", "density", "setting", "scheme", "seed") if name not in (reader.fieldnames or ())
    ]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]!r}; expected the file runs.csv that fedstein reproduce writes"
        )
    lines: Lines = {}
    for number, row in enumerate(reader, start=2):
        try:
            if row["setting"] not in SETTINGS:
                raise ValueError(f"no setting {row['setting']!r}")
            rounds = int(row.get("rounds") or SETTINGS[row["setting"]].rounds)
            key = RunKey(row["order"], row["density"], row["setting"], row["scheme"], int(row["seed"]), rounds)
            values = {name: float(row[name]) for name in MEASURES if row.get(name)}
            if not all(map(isfinite, values.values())):
                raise ValueError("a value is not finite")
        except ValueError as problem:
            raise InputError(f"{path}, line {number}: {problem}") from None
        if key in lines:
            raise InputError(f"{path}, line {number}: this run has a line above already; remove one of them")
        lines[key] = values
    return lines


def write_lines(lines: Lines, path: Path) -> None:
    """Write lines as CSV, sorted.

    Args:
        lines: The lines.
        path: The file.

    Raises:
        InputError: It cannot be written.
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEAD)
    for key in sorted(lines):
        values = lines[key]
        writer.writerow([*key, *(f"{values[name]:.{DIGITS}f}" if name in values else "" for name in MEASURES)])
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, buffer.getvalue().encode())


def add_lines(lines: Lines, path: Path) -> None:
    """Add lines to a file, which keeps those of other commands that it has.

    Args:
        lines: The lines.
        path: The file; it is made if there is none.

    Raises:
        InputError: It is no file of lines, or cannot be written.
    """
    write_lines(merge_lines(read_lines(path), lines) if path.exists() else lines, path)


def without(jobs: Iterable[Job], lines: Lines) -> list[Job]:
    """Return the jobs that have no line yet."""
    return [job for job in jobs if key_of(job) not in lines]


def values_by_seed(
    lines: Lines, *, order: str, density: str, setting: str, scheme: str, measure: str
) -> dict[int, float]:
    """Return what was measured of one scheme in one condition, by seed. The longest runs count if there are several.

    Args:
        lines: The lines.
        order: How clients are numbered.
        density: The KDE density; empty for curvature sites.
        setting: The setting.
        scheme: The scheme.
        measure: A key of MEASURES.

    Returns:
        The values by seed.
    """
    found = [key for key in lines if key[:4] == (order, density, setting, scheme)]
    length = max((key.rounds for key in found), default=0)
    return {key.seed: lines[key][measure] for key in found if key.rounds == length and measure in lines[key]}


def conditions_in(lines: Lines, orders: Sequence[str]) -> list[tuple[str, str]]:
    """Return the orders and densities of the paper's sites that lines have, in the order of ``orders``."""
    present = {(key.order, key.density) for key in lines if key.density}
    return [(order, density) for order in orders for density in ("reference", "log") if (order, density) in present]
