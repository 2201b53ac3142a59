"""Datasets (embedded, downloaded, or files of the user) and their partition over clients.

This package uses NumPy only, except for ``shard``, which puts rows on the device.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedstein.data import covertype, mnist, sklearn_datasets
from fedstein.data.counts import refuse_no_counts, with_counts
from fedstein.data.dataset import Dataset, scaled, validate
from fedstein.data.fetch import cache_folder, get, load_full
from fedstein.data.flamby import load_flamby_heart
from fedstein.data.grouped import load_grouped
from fedstein.data.node_rows import count_rows, load_rows
from fedstein.data.node_schema import expectation, is_open, load_nodes, with_scaling
from fedstein.data.option_types import check_option_types
from fedstein.data.partition import PARTITIONS, partition
from fedstein.data.read_files import READERS
from fedstein.data.scaling import Scaling, first_sums, scale_rows, second_sums
from fedstein.data.user_files import load_features, load_file
from fedstein.errors import InputError

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Dataset",
    "DatasetInfo",
    "Scaling",
    "count_rows",
    "expectation",
    "first_sums",
    "get",
    "is_open",
    "load",
    "load_features",
    "load_file",
    "load_rows",
    "partition",
    "refuse_no_counts",
    "scale_rows",
    "scaled",
    "second_sums",
    "validate",
    "with_counts",
    "with_scaling",
]


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset as ``fedstein data list`` describes it, with a partition that suits it."""

    description: str
    task: str  # "" for a file of the user: the targets decide
    loader: Callable[..., Dataset]
    train_rows: int  # 0: unknown before the file is read
    test_rows: int
    features: int
    classes: int
    licence: str
    origin: str  # "embedded" | "fetched" | "scikit-learn" | "file"
    partition: str
    clients: int  # 0: the clients that the file names
    rows_per_client: int  # 0: all training rows are distributed
    keys: tuple[str, ...] = ()  # the keys of `[data]` that this dataset takes


COVERTYPE = DatasetInfo(
    description="Forest cover, lodgepole pine or not: a sample of 60,000 rows",
    task="classification",
    loader=covertype.load,
    train_rows=40_000,
    test_rows=20_000,
    features=54,
    classes=2,
    licence="CC BY 4.0",
    origin="embedded",
    partition="label_ratio",
    clients=30,
    rows_per_client=500,
)

MNIST = DatasetInfo(
    description="Handwritten digits 0 to 8, 28 x 28: a sample of 18,000 images",
    task="classification",
    loader=mnist.load,
    train_rows=13_500,
    test_rows=4_500,
    features=784,
    classes=9,
    licence="CC BY-SA 3.0",
    origin="embedded",
    partition="classes_per_client",
    clients=27,
    rows_per_client=300,
)

HEART = DatasetInfo(
    description="Heart disease in four hospitals (UCI): every hospital is a client",
    task="classification",
    loader=lambda: load_grouped("heart", cache_folder()),
    train_rows=493,
    test_rows=247,
    features=13,
    classes=2,
    licence="CC BY 4.0",
    origin="fetched",
    partition="given",
    clients=4,
    rows_per_client=0,
)

DATASETS: dict[str, DatasetInfo] = {
    "covertype": COVERTYPE,
    "covertype-full": replace(
        COVERTYPE,
        description="Forest cover, lodgepole pine or not: all 581,012 rows",
        loader=lambda: load_full("covertype-full"),
        train_rows=481_012,
        test_rows=100_000,
        origin="fetched",
    ),
    "mnist": MNIST,
    "mnist-full": replace(
        MNIST,
        description="Handwritten digits 0 to 8, 28 x 28: all 63,042 images",
        loader=lambda: load_full("mnist-full"),
        train_rows=54_051,
        test_rows=8_991,
        origin="fetched",
    ),
    "fashion": DatasetInfo(
        description="Clothes of ten kinds, 28 x 28: Fashion-MNIST, 70,000 images",
        task="classification",
        loader=lambda: load_full("fashion"),
        train_rows=60_000,
        test_rows=10_000,
        features=784,
        classes=10,
        licence="MIT",
        origin="fetched",
        partition="classes_per_client",
        clients=10,
        rows_per_client=300,
    ),
    "digits": DatasetInfo(
        description="Handwritten digits, 8 x 8",
        task="classification",
        loader=sklearn_datasets.digits,
        train_rows=1_348,
        test_rows=449,
        features=64,
        classes=10,
        licence="CC BY 4.0",
        origin="scikit-learn",
        partition="classes_per_client",
        clients=10,
        rows_per_client=0,
    ),
    "breast_cancer": DatasetInfo(
        description="Breast cancer, malignant or benign (Wisconsin, diagnostic)",
        task="classification",
        loader=sklearn_datasets.breast_cancer,
        train_rows=455,
        test_rows=114,
        features=30,
        classes=2,
        licence="CC BY 4.0",
        origin="scikit-learn",
        partition="label_ratio",
        clients=10,
        rows_per_client=0,
    ),
    "diabetes": DatasetInfo(
        description="Disease progression after a year, ten measurements",
        task="regression",
        loader=sklearn_datasets.diabetes,
        train_rows=354,
        test_rows=88,
        features=10,
        classes=0,
        licence="BSD-3-Clause",
        origin="scikit-learn",
        partition="iid",
        clients=5,
        rows_per_client=0,
    ),
    "heart": HEART,
    "heart-flamby": replace(
        HEART,
        description="The same with FLamby's split, and scaled by each hospital: Fed-Heart-Disease",
        loader=lambda: load_flamby_heart(cache_folder()),
        train_rows=486,
        test_rows=254,
    ),
    "contraception": DatasetInfo(
        description="Use of contraception in 60 districts (mlmRev): every district is a client",
        task="classification",
        loader=lambda: load_grouped("contraception", cache_folder()),
        train_rows=1_547,
        test_rows=387,
        features=5,
        classes=2,
        licence="GPL-2+",
        origin="fetched",
        partition="given",
        clients=60,
        rows_per_client=0,
    ),
    "exam": DatasetInfo(
        description="Exam scores in 65 schools (mlmRev): every school is a client",
        task="regression",
        loader=lambda: load_grouped("exam", cache_folder()),
        train_rows=3_247,
        test_rows=812,
        features=5,
        classes=0,
        licence="GPL-2+",
        origin="fetched",
        partition="given",
        clients=65,
        rows_per_client=0,
    ),
    "protein": DatasetInfo(
        description="Distance of predicted protein structures from the true ones, nine measurements (UCI)",
        task="regression",
        loader=lambda: load_full("protein"),
        train_rows=36_584,
        test_rows=9_146,
        features=9,
        classes=0,
        licence="CC BY 4.0",
        origin="fetched",
        partition="iid",
        clients=10,
        rows_per_client=0,
    ),
    "file": DatasetInfo(
        description="Your own CSV, Parquet or NPZ files (data.path)",
        task="",
        loader=load_file,
        train_rows=0,
        test_rows=0,
        features=0,
        classes=0,
        licence="your own",
        origin="file",
        partition="given",
        clients=0,
        rows_per_client=0,
        keys=(
            *("path", "target", "client", "features", "drop", "categories", "missing", "coding", "labels", "task"),
            *("test_path", "test_fraction", "standardize"),
        ),
    ),
    "nodes": DatasetInfo(
        description="A file on every node of its own (data.features, data.target, data.labels): fedstein deploy app",
        task="",
        loader=load_nodes,
        train_rows=0,
        test_rows=0,
        features=0,
        classes=0,
        licence="your own",
        origin="nodes",
        partition="given",
        clients=0,
        rows_per_client=0,
        keys=(
            *("features", "target", "labels", "task", "categories", "coding", "missing", "fill"),
            *("test_path", "standardize"),
        ),
    ),
}


def load(name: str, model_task: str | None = None, **options: Any) -> Dataset:
    """Load a dataset by its name.

    Args:
        name: A key of ``DATASETS``.
        model_task: The task of the model that was chosen. It decides if the targets of a file could be labels or
            numbers.
        **options: Keys of the config section ``[data]``. A value that is None or empty counts as not given.

    Returns:
        The dataset with its training rows and test rows.

    Raises:
        InputError: If there is no dataset of that name, or if it does not take one of the options.
    """
    if not isinstance(name, str):
        raise InputError(f"expected the name of a dataset, as text, got {name!r}; fedstein data list shows them")
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1)
        if Path(name).suffix.lower() in READERS:
            hint = f'for a file of your own set data.name = "file" and data.path = "{name}"'
        else:
            hint = f"did you mean {near[0]!r}?" if near else 'for a file of your own set data.name = "file"'
        raise InputError(f"expected data.name to be one of {', '.join(DATASETS)}, got {name!r}; {hint}")
    given = {key: value for key, value in options.items() if value is not None and value != ""}
    for key in given:
        if key not in DATASETS[name].keys:
            takers = " or ".join(f'"{other}"' for other, info in DATASETS.items() if key in info.keys)
            raise InputError(
                f"expected data.{key} only with data.name = {takers}, got it with {name!r}; remove it or change the "
                "name"
            )
    check_option_types(given)
    if name == "file" and "path" not in given:
        raise InputError(
            'expected data.path with data.name = "file", got none; set data.path to a CSV, Parquet or NPZ file'
        )
    if name == "file":
        given["model_task"] = model_task
    return DATASETS[name].loader(**given)
