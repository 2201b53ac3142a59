"""How close federated draws are to NUTS on the pooled rows: the table and the figure of ``docs/posterior.md``.

    python -m fedstein.studies.posterior_goals --out goals --task breast_cancer --task covertype4 --seeds 3

Each task is run with ``sites.expand = "variational"``; data seed and run seed are the same. NUTS on the pooled rows is
kept in the output folder and not sampled again. ``goals.csv`` gets a line for each task and seed, and ``TASK-SEED.png``
shows the intervals of both.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedstein.inference.reweighting import COUNT
from fedstein.posterior import Posterior, load
from fedstein.report.forest_figure import draw_forest
from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run
from fedstein.studies.reference import nuts
from fedstein.studies.reference.pipeline import pooled
from fedstein.studies.reference.target import Pooled

VARIATIONAL = {"kind": "curvature", "structure": "full", "expand": "variational"}
DATASETS: dict[str, dict[str, Any]] = {
    "breast_cancer": {"data": {"name": "breast_cancer"}, "partition": {"clients": 4}, "rounds": 20},
    "covertype4": {"partition": {"clients": 4, "rows_per_client": 60}, "rounds": 40},
    "covertype30": {},
}
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
CODED = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2)}
PLAIN = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
TASKS = ("heart", *DATASETS)


class Found(NamedTuple):
    """A federated posterior, the same rows in one place, and what the run cost."""

    posterior: Posterior
    target: Pooled
    cost: dict[str, float]


def from_dataset(task: str, seed: int, out: Path) -> Found:
    """Run a task on a built-in dataset."""
    raw = {**DATASETS[task], "seed": seed, "sites": VARIATIONAL}
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    folder = out / f"run-{task}-{seed}"
    if not (folder / "summary.json").exists():
        runner.start(prepare_run(config, dataset), folder, lambda record: None)
    summary = json.loads((folder / "summary.json").read_text())
    weights = json.loads((folder / "weights.json").read_text())
    rounds, passes = summary, summary["refined"]
    cost = {
        "round_seconds": rounds["seconds"],
        "pass_seconds": passes["seconds"] + weights["seconds"],
        "round_bytes": rounds["bytes_down"] + rounds["bytes_up"],
        "pass_bytes": sum(part["bytes_down"] + part["bytes_up"] for part in (passes, weights)),
        "passes": passes["passes"],
        "nodes": int(weights["nodes"] is not None),
    }
    return Found(load(folder), pooled(config, dataset), cost)


def from_hospitals(folder: Path, seed: int) -> Found:
    """Run the four hospitals of UCI's heart disease data: incomplete columns and rows dropped, codes as 0 and 1."""
    import fedstein

    clients = [hospital(folder, name) for name in HOSPITALS]
    posterior = fedstein.fit(
        "blr", clients, seed=seed, rounds=40, sites__kind="curvature", sites__structure="full",
        sites__expand="variational",
    )  # fmt: skip
    x, y = (np.concatenate(parts) for parts in zip(*clients, strict=True))
    return Found(posterior, Pooled(posterior.model, posterior.model.prepare(x), y, 1.0), {})


def hospital(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows of one hospital, standardised there."""
    with next(folder.glob(f"*{name}*")).open() as file:
        lines = list(csv.DictReader(file))
    kept = [line for line in lines if all(line[key] not in ("", "?") for key in (*PLAIN, *CODED, "target"))]
    columns = [[float(line[key]) for line in kept] for key in PLAIN]
    for key, values in CODED.items():
        columns += [[float(float(line[key]) == value) for line in kept] for value in values[1:]]
    x = np.array(columns).T
    scale = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    y = np.array([int(float(line["target"]) > 0) for line in kept], np.int32)
    return ((x - x.mean(axis=0)) / scale).astype(np.float32), y


def measure(task: str, seed: int, out: Path, data: Path | None, draws: int) -> dict[str, Any]:
    """Run, sample the pooled rows, and compare.

    Args:
        task: One of ``TASKS``.
        seed: The seed of data and run.
        out: Where runs and references are kept.
        data: The folder with the hospitals' files, for ``heart``.
        draws: Draws of each chain of the reference.

    Returns:
        A line of ``goals.csv``.
    """
    began = time.monotonic()
    found = from_hospitals(data, seed) if task == "heart" and data is not None else from_dataset(task, seed, out)
    kept = out / f"nuts-{task}-{0 if task == 'heart' else seed}.npy"
    if not kept.exists():
        chains, _ = nuts.sample(found.target, nuts.Sampler(draws=draws, warmup=500), lambda share: None)
        np.save(kept, chains)
    chains = np.load(kept)
    reference = chains.reshape(-1, chains.shape[-1])
    federated, posterior = found.posterior.draws(COUNT), found.posterior
    offsets = (federated.mean(axis=0) - reference.mean(axis=0)) / reference.std(axis=0)
    ratios = federated.std(axis=0) / reference.std(axis=0)
    sides = {"federated": federated, "pooled": reference}
    tails = {f"{name}_{q}": np.quantile(part, q, axis=0) for name, part in sides.items() for q in (0.05, 0.5, 0.95)}
    intervals = {name: np.stack([tails[f"{name}_{q}"] for q in (0.05, 0.5, 0.95)], axis=1) for name in sides}
    draw_forest(posterior.names, intervals, f"{task}, seed {seed}: federated and pooled", out / f"{task}-{seed}.png")
    weighted = posterior.weighted
    return {
        "task": task, "seed": seed, "rows": len(found.target.x), "parameters": len(offsets),
        "offset": np.abs(offsets[:-1]).max(), "ratio_min": ratios[:-1].min(), "ratio_median": np.median(ratios[:-1]),
        "ratio_max": ratios[:-1].max(), "log_xi_offset": offsets[-1], "log_xi_ratio": ratios[-1],
        "k": weighted.k if weighted else np.nan, "ess": weighted.ess if weighted else np.nan,
        "trusted": posterior.trusted, **found.cost, "seconds": time.monotonic() - began,
    }  # fmt: skip


def main() -> None:
    """Read the command line, measure, and write ``goals.csv``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--heart", type=Path, help="The folder with the four hospitals' CSV files.")
    parser.add_argument("--draws", type=int, default=2000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for task in options.task or TASKS:
        for seed in range(options.seeds):
            line = measure(task, seed, options.out, options.heart, options.draws)
            path = options.out / "goals.csv"
            fresh = not path.exists()
            with path.open("a", newline="") as file:
                columns = [*line] if fresh else next(csv.reader(path.open()))
                writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
                if fresh:
                    writer.writeheader()
                writer.writerow({key: f"{v:.4g}" if isinstance(v, float) else v for key, v in line.items()})
            print(task, seed, {key: line[key] for key in ("offset", "ratio_min", "ratio_max", "k", "trusted")})


if __name__ == "__main__":
    main()
