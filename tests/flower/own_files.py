"""Files of made-up patients at three clinics, and nodes that have them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_runs import QUICK, Fleet
from small_run import without_passes

SITES = ("clinic-a", "clinic-b", "clinic-c")
COLUMNS = ("age", "dose", "smoker")


def patients(seed: int, rows: int = 60, regression: bool = False) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = np.column_stack([draw.normal(60 + 4 * seed, 9, rows), draw.normal(1000, 3, rows), draw.integers(0, 2, rows)])
    score = (x[:, 0] - 62) / 9 - (x[:, 1] - 1000) / 3 + x[:, 2]
    return x, score if regression else (score + draw.normal(0, 0.5, rows) > 0).astype(int)


def write(path: Path, x: np.ndarray, y: np.ndarray, columns: tuple[str, ...] = COLUMNS, name: str = "ill") -> Path:
    if path.suffix == ".npz":
        np.savez(path, x=x, **{name: y}, feature_names=np.array(columns))
    elif path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({**dict(zip(columns, x.T, strict=True)), name: y, "note": ["x"] * len(y)}), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*columns, name])
            writer.writerows([*row, label] for row, label in zip(x.tolist(), y.tolist(), strict=True))
    return path


def own(fleet: Fleet, tmp_path: Path, suffixes: tuple[str, ...] = (".csv", ".npz", ".parquet"), **more: Any) -> None:
    """Three nodes, each with a file of another kind."""
    fleet.grid.nodes.clear()
    for number, (name, suffix) in enumerate(zip(SITES, suffixes, strict=True)):
        path = write(tmp_path / f"{name}{suffix}", *patients(number, **more))
        fleet.grid.nodes[200 + number] = node_of(name, path, tmp_path, COLUMNS)


def node_of(name: str, path: Path, tmp_path: Path, columns: tuple[str, ...]) -> dict[str, Any]:
    """The node config of a clinic whose operator allows these features."""
    allowed = {"target": "ill", "features": ",".join(columns)}
    return {"name": name, "data": str(path), "state-dir": str(tmp_path / "s" / name), **allowed}


def raw(**sections: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "seed": 1,
        "rounds": 6,
        "data": {"name": "nodes", "features": list(COLUMNS), "target": "ill", "labels": [0, 1]},
        "partition": {"clients": 3},
        "algorithm": {"particles": 6, "local_steps": 5},
        "engine": dict(QUICK),
    }
    for name, given in sections.items():
        base[name] = {**base.get(name, {}), **given} if isinstance(given, dict) else given
    return without_passes(base)
