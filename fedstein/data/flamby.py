"""Fed-Heart-Disease as FLamby prepares it: its split into training and test rows, and scaling by each hospital.

    x <- (x - mean of the hospital's training rows) / (their standard deviation, divisor n - 1)

for every column, 0/1 columns included. The rows are those of ``heart``: without slope, ca and thal, then without
patients who lack a value; cp and restecg coded with a reference category. A hospital's rows are split 66 to 34 by
scikit-learn's ``train_test_split`` with seed 43, stratified by diagnosis if each diagnosis has more than two patients.

Reference: Ogier du Terrail et al., "FLamby: Datasets and Benchmarks for Cross-Silo Federated Learning in Realistic
Healthcare Settings", NeurIPS 2022.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedstein.data.dataset import Dataset, validate
from fedstein.data.grouped import GROUPED, load_grouped
from fedstein.data.table import Table

SHARE, SEED = 0.66, 43


def load_flamby_heart(cache: Path) -> Dataset:
    """Load the four hospitals from the cache folder, where ``fedstein data get heart`` has put them.

    Args:
        cache: The cache folder.

    Returns:
        The dataset: 486 training rows and 254 test rows of four clients.

    Raises:
        InputError: The files do not exist, or have other rows.
    """
    whole = load_grouped("heart", cache)  # checks the files, and has the names and the coding of the columns
    encoding = whole.encoding
    assert encoding is not None  # rows from files always name their clients
    from fedstein.data.read_files import read_table

    parts = []
    for client, file in enumerate(GROUPED["heart"].files):
        table: Table = read_table(cache / "heart" / file, target="diagnosis")
        labels = np.array([whole.label_names.index(str(value)) for value in table.targets], np.int32)
        rows = encoding.encode(table)
        train, test = flamby_split(labels)
        mean, scale = rows[train].mean(axis=0), rows[train].std(axis=0, ddof=1) + 1e-9
        parts.append(((rows - mean) / scale, labels, train, test, np.full(len(train), client)))
    return validate(
        replace(
            whole,
            name="heart-flamby",
            train_x=np.concatenate([x[train] for x, _, train, _, _ in parts]).astype(np.float32),
            train_y=np.concatenate([y[train] for _, y, train, _, _ in parts]),
            test_x=np.concatenate([x[test] for x, _, _, test, _ in parts]).astype(np.float32),
            test_y=np.concatenate([y[test] for _, y, _, test, _ in parts]),
            mean=np.zeros(whole.train_x.shape[1]),  # every hospital has its own scale
            scale=np.ones(whole.train_x.shape[1]),
            client_of_row=np.concatenate([owners for *_, owners in parts]),
        )
    )


def flamby_split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split the rows of a hospital.

    Args:
        labels: The diagnosis of each row, 0 or 1.

    Returns:
        The numbers of the training rows and of the test rows, each in the order of the file.
    """
    from sklearn.model_selection import train_test_split

    sizes = np.unique(labels, return_counts=True)[1]
    strata = labels if len(sizes) > 1 and (sizes > 2).all() else None
    train, test = train_test_split(
        np.arange(len(labels)),
        test_size=1.0 - SHARE,
        train_size=SHARE,
        random_state=SEED,
        shuffle=True,
        stratify=strata,
    )
    return np.sort(train), np.sort(test)
