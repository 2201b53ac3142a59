"""The distance between federated draws and NUTS on the pooled rows: the table and figures of ``docs/posterior.md``.

    python -m fedstein.studies.posterior_goals --out goals --task breast_cancer --task covertype4 --seeds 3

Each task (``goal_tasks``) is run with ``sites.expand = "variational"``; partition and run have the same seed.
Runs and NUTS draws are kept in the output folder and not made again. ``goals.csv`` gets a line for each task and seed,
with Monte Carlo standard errors (MCSE) of the comparison, and ``TASK-SEED.png`` shows the intervals of both.
``--again`` compares a second run of NUTS with the first, which says what is attainable.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedstein.files import write_bytes
from fedstein.inference.importance import Weighted
from fedstein.posterior import Posterior, load
from fedstein.report.forest_figure import draw_forest
from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run
from fedstein.studies.goal_tasks import TASKS, VARIATIONAL, raw_config
from fedstein.studies.reference import nuts
from fedstein.studies.reference.pipeline import pooled
from fedstein.studies.reference.target import Pooled

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
CODED = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2)}
PLAIN = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
SCALE = "log xi"  # the parameter that has columns of its own


class Found(NamedTuple):
    """A federated posterior, the same rows in one place, and what the run cost."""

    posterior: Posterior
    target: Pooled
    cost: dict[str, float]


class Moments(NamedTuple):
    """Means and sds of every parameter, with the MCSE of the mean in sds and of the sd relative to itself."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray


def of_chains(chains: np.ndarray) -> Moments:
    """The moments of chains x draws x d, with errors from effective sample sizes of values and squares."""
    from numpyro.diagnostics import effective_sample_size

    mean, sd = chains.mean(axis=(0, 1)), chains.std(axis=(0, 1))
    squares = ((chains - mean) / sd) ** 2
    sizes = [np.asarray(effective_sample_size(values), float) for values in (chains, squares)]
    return Moments(mean, sd, sizes[0] ** -0.5, 0.5 * squares.std(axis=(0, 1)) * sizes[1] ** -0.5)


def of_weighted(weighted: Weighted) -> Moments:
    """The moments of weighted independent draws (Owen 2013, ch. 9: the variance of a self-normalised average)."""
    mean, weights = weighted.mean, weighted.weights[:, None]
    standard = (weighted.draws - mean) / np.sqrt(np.diag(weighted.covariance))
    errors = [np.sqrt(np.sum(weights**2 * values**2, axis=0)) for values in (standard, standard**2 - 1)]
    return Moments(mean, np.sqrt(np.diag(weighted.covariance)), errors[0], 0.5 * errors[1])


def target_of(task: str, seed: int, out: Path) -> tuple[Any, Any, Pooled]:
    """The config and the dataset of a task, and the posterior of its rows in one place."""
    raw = raw_config(task, seed, out)
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    return config, dataset, pooled(config, dataset)


def from_config(task: str, seed: int, out: Path) -> Found:
    """Run a task of ``TASKS``, or read the run that is there."""
    config, dataset, target = target_of(task, seed, out)
    folder = out / f"run-{task}-{seed}"
    if not (folder / "summary.json").exists():
        shutil.rmtree(folder, ignore_errors=True)  # what a run of this study that was stopped has left
        runner.start(prepare_run(config, dataset), folder, lambda record: None)
    return Found(load(folder), target, cost_of(folder))


def cost_of(folder: Path) -> dict[str, float]:
    """Seconds and bytes of a run's rounds, and of what came after them."""
    rounds = json.loads((folder / "summary.json").read_text())
    weights = json.loads((folder / "weights.json").read_text())
    passes = rounds["refined"]
    return {
        "round_seconds": rounds["seconds"],
        "pass_seconds": passes["seconds"] + weights["seconds"],
        "round_bytes": rounds["bytes_down"] + rounds["bytes_up"],
        "pass_bytes": sum(part["bytes_down"] + part["bytes_up"] for part in (passes, weights)),
        "passes": passes["passes"],
        "nodes": int(weights["nodes"] is not None),
    }


def from_hospitals(folder: Path, seed: int, out: Path) -> Found:
    """Run the four hospitals of UCI's heart disease data: incomplete columns and rows dropped, codes as 0 and 1."""
    import fedstein

    clients = [hospital(folder, name) for name in HOSPITALS]
    run = out / f"run-heart-{seed}"
    if not (run / "summary.json").exists():
        fedstein.fit("blr", clients, seed=seed, rounds=40, settings={"sites": VARIATIONAL}, out=run)
    posterior = load(run)
    x, y = (np.concatenate(parts) for parts in zip(*clients, strict=True))
    return Found(posterior, Pooled(posterior.model, posterior.model.prepare(x), y, 1.0), cost_of(run))


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


def reference_of(task: str, target: Pooled, out: Path, draws: int, warmup: int, seed: int = 0) -> np.ndarray:
    """The chains of NUTS on the pooled rows, which seeds with the same rows share."""
    rows = hashlib.sha256(np.ascontiguousarray(target.x).tobytes() + np.ascontiguousarray(target.y).tobytes())
    kept = out / f"nuts-{task}-{rows.hexdigest()[:8]}-{seed}.npy"
    if not kept.exists():
        sampler = nuts.Sampler(draws=draws, warmup=warmup, seed=seed)
        chains, checks = nuts.sample(target, sampler, lambda share: None)
        print(task, kept.name, checks, flush=True)
        np.save(kept, chains)
    found: np.ndarray = np.load(kept)
    return found


def compare(found: Moments, reference: Moments, names: tuple[str, ...], prefix: str = "") -> dict[str, float]:
    """The largest offset of a mean and the ratios of sds over all parameters but log xi, with MCSEs, and log xi's."""
    offsets, ratios = (found.mean - reference.mean) / reference.sd, found.sd / reference.sd
    errors = np.hypot(found.mean_error * ratios, reference.mean_error), np.hypot(found.sd_error, reference.sd_error)
    rest = np.array([name != SCALE for name in names])
    line = {
        "offset": np.abs(offsets[rest]).max(), "offset_mcse": errors[0][rest].max(),
        "ratio_min": ratios[rest].min(), "ratio_median": np.median(ratios[rest]), "ratio_max": ratios[rest].max(),
        "ratio_mcse": errors[1][rest].max(),
    }  # fmt: skip
    if not rest.all():
        line |= {"log_xi_offset": offsets[~rest][0], "log_xi_ratio": ratios[~rest][0]}
    return {prefix + key: float(value) for key, value in line.items()}


def measure(task: str, seed: int, found: Found, chains: np.ndarray, out: Path) -> dict[str, Any]:
    """Compare a run with NUTS, and draw the figure of both.

    Args:
        task: The name of the task.
        seed: The seed.
        found: The run.
        chains: The draws of NUTS, chains x draws x d.
        out: The folder that gets the figure.

    Returns:
        A line of ``goals.csv``.
    """
    posterior, weighted = found.posterior, found.posterior.weighted
    federated = of_weighted(weighted) if weighted is not None else of_chains(posterior.sample().draws)
    sides = {"federated": posterior.draws(using="draws"), "pooled": chains.reshape(-1, chains.shape[-1])}
    intervals = {name: np.quantile(part, (0.05, 0.5, 0.95), axis=0).T for name, part in sides.items()}
    draw_forest(posterior.names, intervals, f"{task}, seed {seed}: federated and pooled", out / f"{task}-{seed}.png")
    return {
        "task": task, "seed": seed, "rows": found.target.rows, "parameters": chains.shape[-1],
        **compare(federated, of_chains(chains), posterior.names),
        "k": weighted.k if weighted else np.nan, "ess": weighted.ess if weighted else np.nan,
        "trusted": posterior.trusted, **found.cost,
    }  # fmt: skip


def write_line(path: Path, line: dict[str, Any]) -> None:
    """Put a line into the CSV file, in place of an earlier one of the same task and seed."""
    lines = list(csv.DictReader(path.open())) if path.exists() else []
    text = {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in line.items()}
    lines = [old for old in lines if (old["task"], old["seed"]) != (text["task"], text["seed"])] + [text]
    columns = list(dict.fromkeys(key for entry in lines for key in entry))
    rows = [[entry.get(key, "") for key in columns] for entry in lines]
    write_bytes(path, "".join(",".join(row) + "\n" for row in [columns, *rows]).encode())


def main() -> None:
    """Read the command line, measure, and write ``goals.csv``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", action="append", choices=("heart", *TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    parser.add_argument("--heart", type=Path, help="The folder with the four hospitals' CSV files.")
    parser.add_argument("--draws", type=int, default=2000, help="Draws of each of NUTS's four chains.")
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--references", action="store_true", help="Sample the references only.")
    parser.add_argument("--again", action="store_true", help="Compare a second run of NUTS with the first, too.")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for task in options.task or TASKS:
        for seed in range(options.first, options.first + options.seeds):
            began = time.monotonic()
            length = (options.out, options.draws, options.warmup)
            if options.references:
                reference_of(task, target_of(task, seed, options.out)[2], *length)
                continue
            heart = task == "heart"
            found = from_hospitals(options.heart, seed, options.out) if heart else from_config(task, seed, options.out)
            chains = reference_of(task, found.target, *length)
            line = measure(task, seed, found, chains, options.out)
            if options.again:
                other = reference_of(task, found.target, *length, seed=1)
                line |= compare(of_chains(other), of_chains(chains), found.posterior.names, "again_")
            write_line(options.out / "goals.csv", line)
            shown = ("offset", "offset_mcse", "ratio_min", "ratio_max", "ratio_mcse", "k", "ess", "trusted")
            print(task, seed, {key: line[key] for key in shown}, f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
