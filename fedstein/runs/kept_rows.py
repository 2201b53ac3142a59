"""The rows that were passed to ``fedstein.fit(out=...)``: ``rows.safetensors`` and ``rows.json`` in the run folder.

Rows of a dataset or of a file can be read again when a run is resumed. Rows that were passed to ``fit`` exist nowhere
else, so the folder keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.data import Dataset
from fedstein.errors import InputError
from fedstein.files import disk_errors, pack, read_json, unpack, write_bytes, write_json

ROWS, ABOUT = "rows.safetensors", "rows.json"
ARRAYS = ("train_x", "train_y", "test_x", "test_y", "client_of_row")


def write_rows(folder: Path, dataset: Dataset) -> None:
    """Keep the rows of a run.

    Args:
        folder: The run folder.
        dataset: The rows.
    """
    with disk_errors(folder):
        write_bytes(folder / ROWS, pack({name: getattr(dataset, name) for name in ARRAYS}))
        write_json(folder / ABOUT, {"clients": list(dataset.client_names), "target": dataset.target_name})


def read_rows(folder: Path, facts: Mapping[str, Any]) -> Dataset:
    """Read the rows of a run again.

    Args:
        folder: The run folder.
        facts: The content of its ``data.json``.

    Returns:
        The rows as they were passed.

    Raises:
        InputError: The files do not exist, or are damaged.
    """
    path = folder / ROWS
    if not path.is_file():
        raise InputError(f"expected the rows of {folder} at {path}, found none; call fedstein.fit again")
    about = read_json(folder / ABOUT, "the clients of the rows")
    arrays = unpack(path.read_bytes(), path)
    if not set(ARRAYS) <= set(arrays) or not isinstance(about, dict) or not isinstance(about.get("clients"), list):
        raise InputError(f"{path} is damaged: expected the arrays {', '.join(ARRAYS)}; call fedstein.fit again")
    return Dataset(
        name=str(facts["name"]),
        task=facts["task"],
        classes=facts["classes"],
        feature_names=tuple(facts["features"]),
        mean=np.array(facts["mean"], np.float64),
        scale=np.array(facts["scale"], np.float64),
        target_mean=float(facts["target_mean"]),
        target_scale=float(facts["target_scale"]),
        label_names=tuple(facts["labels"]),
        label_kind=str(facts.get("label_kind", "text")),
        client_names=tuple(map(str, about["clients"])),
        target_name=str(about.get("target", "")),
        train_x=arrays["train_x"],
        train_y=arrays["train_y"],
        test_x=arrays["test_x"],
        test_y=arrays["test_y"],
        client_of_row=arrays["client_of_row"],
    )
