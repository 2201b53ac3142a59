"""Run or continue the study. Lines that the tables already have are not computed again.

python -m fedstein.studies.privacy --out DIR --heart FOLDER
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedstein.studies.privacy.accuracy import BESIDE, CLIENT_LEVEL, SECURE, beside_pvi, client_level, covertype, heart
from fedstein.studies.privacy.coverage import TASKS, simulate
from fedstein.studies.privacy.networks import TASKS as NETWORKS
from fedstein.studies.privacy.networks import digits
from fedstein.studies.tables import add, known

EPSILONS = (0.0, 8.0, 3.0, 1.0)


def fill(
    path: Path,
    task: str,
    seeds: int,
    compute: Callable[[float, int], dict[str, Any]],
    epsilons: Sequence[float] = EPSILONS,
) -> None:
    """Compute what a table does not have yet, seed by seed."""
    done = known(path, ("task", "epsilon", "seed"))
    for seed in range(seeds):
        for epsilon in epsilons:
            if (task, f"{epsilon:g}", str(seed)) not in done:
                add(path, compute(epsilon, seed))


def main() -> None:
    """Read the command line and fill the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--heart", type=Path, help="The folder with the hospitals' processed.*.data files of UCI.")
    parser.add_argument(
        "--part", action="append", choices=("covertype", "secure", "pvi", "client", "heart", "coverage", "networks")
    )
    parser.add_argument("--seeds", type=int, default=5, help="Seeds of Covertype; heart has four times as many.")
    parser.add_argument("--simulations", type=int, default=40)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    parts = options.part or [
        "covertype",
        "secure",
        "pvi",
        "client",
        "coverage",
        "networks",
        *(["heart"] if options.heart else []),
    ]
    if "heart" in parts:
        fill(
            options.out / "heart.csv", "heart, 4 hospitals", 4 * options.seeds, lambda e, s: heart(options.heart, e, s)
        )
    if "coverage" in parts:
        for task in TASKS:
            count = options.simulations // (1 if task.startswith("gaussian") else 4)
            fill(options.out / "coverage.csv", task, count, lambda e, s, task=task: simulate(task, e, s))  # type: ignore[misc]
    runs = options.out / "runs"
    if "secure" in parts:
        for task in SECURE:
            path = options.out / "secure.csv"
            fill(path, task, options.seeds, lambda e, s, task=task: covertype(e, s, runs, task), (1.0,))  # type: ignore[misc]
    if "networks" in parts:
        for task in NETWORKS:
            path = options.out / "networks.csv"
            fill(path, task, options.seeds, lambda e, s, task=task: digits(e, s, runs, task))  # type: ignore[misc]
    if "pvi" in parts:
        for task in BESIDE:
            path = options.out / "pvi.csv"
            fill(path, task, options.seeds, lambda e, s, task=task: beside_pvi(task, e, s, runs), (3.0, 1.0))  # type: ignore[misc]
    if "client" in parts:
        path = options.out / "client.csv"
        fill(path, CLIENT_LEVEL, options.seeds, lambda e, s: client_level(e, s, runs), EPSILONS[1:])
    if "covertype" in parts:
        fill(options.out / "covertype.csv", "covertype 10 x 4,000", options.seeds, lambda e, s: covertype(e, s, runs))


if __name__ == "__main__":
    main()
