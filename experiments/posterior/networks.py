"""How well calibrated networks are: particles alone, with a temperature, and with Gaussian last layers.

    python experiments/posterior/networks.py out --task digits --task mnist --seeds 3 --last-layer

Every run holds out a fifth of each client's rows. networks.csv gets a line for each task, seed, kind of prediction and
set of rows. A temperature that is judged on held-out rows was fitted on the other half of them; one that is judged on
test rows was fitted on all held-out rows. ``ece_chance`` is the mean ECE that predictions would have on as many rows if
they were perfectly calibrated (labels drawn from them, 500 times), and ``ece_p`` the share of such labels with at least
the ECE that was found. ``ood`` is the mean entropy, in nats, of the same rows with permuted pixels.

The Gaussian last layer of a particle is what full variational sites of all clients would give: its features are fixed,
the last layer is a softmax regression with the network's prior, and q = N(m, V) is the fixed point of

    V^-1 = lambda I + sum_i E_q[diag p_i - p_i p_i'] (x) h_i h_i',    m <- m + V E_q[gradient].
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.data.holdout import split_client
from fedstein.evaluation.metrics.calibration import binned
from fedstein.evaluation.metrics.temperature import least, nll_on_grid, tempered
from fedstein.evaluation.prediction import Prediction
from fedstein.posterior import load
from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import client_rows, facts_of, load_dataset, prepare_run

HELD = {"where": "clients", "fraction": 0.2, "every": 1000, "temperature": "fit"}
TASKS: dict[str, dict[str, Any]] = {
    "digits": {
        "data": {"name": "digits"},
        "partition": {"kind": "dirichlet", "concentration": 0.1, "clients": 10},
        "rounds": 40,
    },
    "mnist": {"data": {"name": "mnist"}},
    "mnist120": {"data": {"name": "mnist"}, "partition": {"clients": 120, "rows_per_client": 90}},
    "fashion": {
        "data": {"name": "file", "path": "train.npz", "test_path": "test.npz", "standardize": False}
        | {"task": "classification"},
        "partition": {"kind": "classes_per_client", "clients": 27, "rows_per_client": 300},
        "rounds": 81,
    },
}
SAMPLES = 32  # draws of a last layer
SIMULATED = 500


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def mean_log(log_probs: np.ndarray) -> np.ndarray:
    """The logarithm of the mean over the first axis."""
    top = log_probs.max(axis=0)
    return top + np.log(np.exp(log_probs - top).mean(axis=0))


def layers(model: Any, particle: np.ndarray) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
    """The features of a network with one hidden layer, with a column of ones, and its last layer, classes x (h + 1)."""
    wide, hidden, classes = model.features, model.widths[1], model.classes
    parts = np.split(particle.astype(np.float64), np.cumsum([wide * hidden, hidden, hidden * classes]))
    first, last = parts[0].reshape(hidden, wide), parts[2].reshape(classes, hidden)

    def features(x: np.ndarray) -> np.ndarray:
        found = np.maximum(x.astype(np.float64) @ first.T + parts[1], 0)
        return np.concatenate([found, np.ones((len(x), 1))], axis=1)

    return features, np.concatenate([last, parts[3][:, None]], axis=1)


def gaussian_layer(h: np.ndarray, y: np.ndarray, start: np.ndarray, precision: float, seed: int) -> list[np.ndarray]:
    """Draws of a last layer from the variational Gaussian, each classes x (h + 1)."""
    classes, inputs = start.shape
    size, truth = classes * inputs, np.eye(classes)[y]
    noise = np.random.default_rng(seed).standard_normal((SAMPLES // 2, size))
    noise = np.concatenate([noise, -noise])
    mean, lower = start.ravel(), None
    for _ in range(12):
        # V = (L L')^-1, so that a draw is m + L'^-1 z; the first step is at the particle itself
        draws = mean + (0.0 if lower is None else np.linalg.solve(lower.T, noise.T).T)
        draws = np.broadcast_to(draws, (len(noise), size)) if lower is not None else mean[None]
        chances = np.exp(log_softmax(np.einsum("sci,ri->src", draws.reshape(-1, classes, inputs), h, optimize=True)))
        gradient = ((truth - chances.mean(axis=0)).T @ h).ravel() - precision * mean
        matrix = np.empty((classes, inputs, classes, inputs))
        for a in range(classes):
            for b in range(a, classes):
                weight = -(chances[:, :, a] * chances[:, :, b]).mean(axis=0)
                weight = weight + (chances[:, :, a].mean(axis=0) if a == b else 0.0)
                matrix[a, :, b] = matrix[b, :, a] = h.T @ (weight[:, None] * h)
        lower = np.linalg.cholesky(matrix.reshape(size, size) + precision * np.eye(size))
        step = np.linalg.solve(lower.T, np.linalg.solve(lower, gradient))
        far = float(np.sqrt(step @ (lower @ (lower.T @ step)) / size))  # in posterior sds, root mean square
        mean = mean + step * min(1.0, 1.0 / max(far, 1e-12))
        if far < 0.02:
            break
    return list((mean + np.linalg.solve(lower.T, noise.T).T).reshape(-1, classes, inputs))


def ece_of(log_probs: np.ndarray, y: np.ndarray) -> float:
    sums = binned(Prediction("classification", log_probs), y)
    gap = np.abs(np.asarray(sums["bin_correct"]) - np.asarray(sums["bin_confidence"]))
    return float(gap.sum() / len(y))


def scores(log_probs: np.ndarray, y: np.ndarray, strange: np.ndarray) -> dict[str, float]:
    """Accuracy, NLL, ECE with what chance makes of it, confidence minus accuracy, and entropy far from the data."""
    rng, chances = np.random.default_rng(0), np.exp(log_probs)
    edges = chances.cumsum(axis=1)
    by_chance = [
        ece_of(log_probs, np.minimum((rng.random((len(y), 1)) > edges).sum(axis=1), chances.shape[1] - 1))
        for _ in range(SIMULATED)
    ]
    found, right = ece_of(log_probs, y), log_probs.argmax(axis=1) == y
    return {
        "rows": len(y),
        "accuracy": float(right.mean()),
        "nll": float(-log_probs[np.arange(len(y)), y].mean()),
        "ece": found,
        "ece_chance": float(np.mean(by_chance)),
        "ece_p": float(np.mean(np.asarray(by_chance) >= found)),
        "overconfidence": float(chances.max(axis=1).mean() - right.mean()),
        "ood": float(-(np.exp(strange) * strange).sum(axis=1).mean()),
    }


def temperature_of(log_probs: np.ndarray, y: np.ndarray) -> float:
    return least(nll_on_grid(Prediction("classification", log_probs), y)) or 1.0


def measure(task: str, seed: int, out: Path, data: Path, last_layer: bool) -> list[dict[str, Any]]:
    """Run a task, or read the run that is there, and score its predictions."""
    raw = {**TASKS[task], "seed": seed, "evaluate": HELD}
    if "path" in raw["data"]:
        raw["data"] = {**raw["data"], **{key: str(data / raw["data"][key]) for key in ("path", "test_path")}}
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    folder = out / f"run-{task}-{seed}"
    if not (folder / "summary.json").exists():
        runner.start(prepare_run(config, dataset), folder, lambda record: None)
    posterior = load(folder)
    shares = [split_client(x, y, config.evaluate.fraction) for x, y in client_rows(config, dataset)]
    x, y, held_x, held_y = (
        np.concatenate([getattr(s, part) for s in shares]) for part in ("x", "y", "held_x", "held_y")
    )
    mixed = np.random.default_rng(1).permutation(held_x.shape[1])
    sets = {"held": (held_x, held_y), "test": (dataset.test_x, dataset.test_y)}
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
    nets = [layers(posterior.model, particle) for particle in posterior.particles]
    kinds["particles"] = lambda rows: mean_log(np.stack([log_softmax(f(rows) @ w.T) for f, w in nets]))
    if last_layer:
        precision = float(posterior.config.model.prior_precision)
        drawn = [gaussian_layer(f(x), y, w, precision, n) for n, (f, w) in enumerate(nets)]
        centres = [np.mean(draws, axis=0) for draws in drawn]
        kinds["last layer"] = lambda rows: mean_log(
            np.stack(
                [
                    mean_log(np.stack([log_softmax(f(rows) @ w.T) for w in d]))
                    for (f, _), d in zip(nets, drawn, strict=True)
                ]
            )
        )
        kinds["last layer, mean"] = lambda rows: mean_log(
            np.stack([log_softmax(f(rows) @ w.T) for (f, _), w in zip(nets, centres, strict=True)])
        )
    lines = []
    for kind, predict in kinds.items():
        of_held = predict(held_x)
        half = np.random.default_rng(2).random(len(held_y)) < 0.5
        whole = temperature_of(of_held, held_y)
        for name, (rows, labels) in sets.items():
            plain, strange = predict(rows), predict(rows[:, mixed])
            about = {"task": task, "seed": seed, "prediction": kind, "on": name}
            lines.append({**about, "T": 1.0, **scores(plain, labels, strange)})
            warm = np.full(len(labels), whole)
            if name == "held":
                for part in (half, ~half):
                    warm[part] = temperature_of(of_held[~part], held_y[~part])
            about["prediction"] = f"{kind}, temperature"
            fitted = np.concatenate([tempered(row[None], t) for row, t in zip(plain, warm, strict=True)])
            far = np.concatenate([tempered(row[None], t) for row, t in zip(strange, warm, strict=True)])
            line = {**about, "T": float(warm.mean()), **scores(fitted, labels, far)}
            if name == "test":  # what no federation can know: the temperature that these test rows would choose
                line["T_of_test"] = temperature_of(plain, labels)
            lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--task", action="append", choices=tuple(TASKS), required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path("fashion"), help="The folder that fashion.py has written.")
    parser.add_argument("--last-layer", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "networks.csv"
    for task in options.task:
        for seed in range(options.seeds):
            lines = list(csv.DictReader(path.open())) if path.exists() else []
            lines = [line for line in lines if (line["task"], line["seed"]) != (task, str(seed))]
            found = measure(task, seed, options.out, options.data, options.last_layer)
            for line in found:
                print({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}, flush=True)
            lines += [{k: f"{v:.5g}" if isinstance(v, float) else str(v) for k, v in line.items()} for line in found]
            columns = list(dict.fromkeys(key for line in lines for key in line))
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
                writer.writeheader()
                writer.writerows(lines)


if __name__ == "__main__":
    main()
