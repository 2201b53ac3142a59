"""Run folders made up for tests: the files of the contract, filled with plausible numbers."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from fedstein.evaluation.metrics import NAMES, classification, reliability, tail

CONFIG: dict[str, Any] = {
    "seed": 0,
    "rounds": 120,
    "data": {"name": "covertype"},
    "partition": {"kind": "label_ratio", "clients": 30, "rows_per_client": 500, "ratio": 0.9},
    "model": {"kind": "blr"},
    "sites": {"kind": "particles", "density": "log", "bandwidth": 0.55},
    "selection": {"kind": "ksd", "per_round": 1, "pool": 0},
    "algorithm": {"kind": "dsvgd", "particles": 20, "step_size": 0.05},
    "engine": {"kind": "local", "threads": 0, "precision": "float32"},
    "evaluate": {"every": 1},
}
LEVEL = {"ksd": 0.71, "hip": 0.725, "round_robin": 0.70, "random": 0.68}
REPORT_BYTES = {"ksd": (134_400, 120), "hip": (134_400, 134_400)}


def config_with(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The base configuration with dotted keys replaced."""
    config = copy.deepcopy(CONFIG)
    for dotted, value in changes.items():
        *sections, key = dotted.split(".")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    return config


def made_up_rounds(config: dict[str, Any]) -> list[dict[str, Any]]:
    rng = np.random.default_rng([config["seed"], *config["selection"]["kind"].encode()])
    kind, clients, every = config["selection"]["kind"], config["partition"]["clients"], config["evaluate"]["every"]
    regression = config["model"]["kind"] == "bnn_regressor"
    weights = rng.dirichlet(np.full(clients, 2.0))
    down, up = REPORT_BYTES.get(kind, (0, 0))
    lines = []
    for r in range(1, config["rounds"] + 1):
        chosen = (r - 1) % clients if kind == "round_robin" else int(rng.choice(clients, p=weights))
        gain = 1 - np.exp(-r / 15)
        metrics: dict[str, float | None] = dict.fromkeys(NAMES)
        if r % every == 0 or r == config["rounds"]:
            if regression:
                metrics |= {
                    "rmse": float(12 - 6 * gain + rng.normal(0, 0.3)),
                    "nll": float(3.9 - gain + rng.normal(0, 0.05)),
                }
            else:
                accuracy = 0.5 + (LEVEL.get(kind, 0.7) - 0.5) * gain + rng.normal(0, 0.012)
                metrics |= {
                    "accuracy": float(accuracy),
                    "nll": float(0.58 + 8 * np.exp(-r / 6) + abs(rng.normal(0, 0.02))),
                }
                metrics |= {"brier": float(0.5 - 0.1 * gain), "ece": float(0.05 + 0.01 * rng.random()), "mce": 0.2}
        lines.append(
            {
                "round": r,
                "selected": [chosen],
                "failed": [],
                "candidates": clients,
                "candidate_ids": None,
                "probabilities": None,
                "reports": None,
                **metrics,
                "bytes_down": 4480 + down,
                "bytes_up": 4480 + up,
                "seconds": 0.03 + 0.01 * float(rng.random()),
                "row_gradients": {"train": 20_000, "site": 0, "report": 300_000 if down else 0},
            }
        )
    return lines


def made_up_summary(config: dict[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
    chosen = [client for line in lines for client in line["selected"]]
    summary = {
        "rounds": len(lines),
        "final": {m: lines[-1][m] for m in NAMES},
        "tail": tail(lines),
        "bytes_down": sum(line["bytes_down"] for line in lines),
        "bytes_up": sum(line["bytes_up"] for line in lines),
        "row_gradients": {p: sum(line["row_gradients"][p] for line in lines) for p in ("train", "site", "report")},
        "selected_counts": np.bincount(chosen, minlength=config["partition"]["clients"]).tolist(),
        "seconds": sum(line["seconds"] for line in lines),
        "status": "finished",
    }
    if config["model"]["kind"] != "bnn_regressor":
        rng = np.random.default_rng(config["seed"])
        true = rng.beta(1.6, 1.6, 5000)
        labels = (rng.random(5000) < true).astype(int)
        said = np.clip(true + 0.12 * (true - 0.5) + rng.normal(0, 0.03, 5000), 0.001, 0.999)
        log_probs = np.log(np.stack([1 - said, said], axis=1))
        summary["reliability"] = reliability(log_probs, labels)
        summary["final"]["ece"] = classification(log_probs, labels)["ece"]
    return summary


def write_run(folder: Path, changes: Mapping[str, Any] | None = None, **options: Any) -> Path:
    """Write a run folder; options: `accuracy` (the same in every round), `stop` (killed after that round)."""
    config = config_with(changes or {})
    lines = made_up_rounds(config)
    for line in lines if "accuracy" in options else []:
        line["accuracy"] = options["accuracy"]
    finished = "stop" not in options
    lines = lines[: options.get("stop")]
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps(config), "utf-8")
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    if finished:
        (folder / "summary.json").write_text(json.dumps(made_up_summary(config, lines)), "utf-8")
    return folder


@pytest.fixture(scope="session")
def run_writer() -> Callable[..., Path]:
    """`write_run` itself, for fixtures that outlive one test."""
    return write_run


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """make_run("name", {"selection.kind": "hip", "seed": 1}, stop=10) -> the folder."""
    return lambda name, changes=None, **options: write_run(tmp_path / name, changes, **options)
