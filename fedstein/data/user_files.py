"""Files of the user as a dataset: CSV with a header line, Parquet, or NPZ (x, y, optionally client, feature_names)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.data.cells import normalised_label
from fedstein.data.column_counts import add_counts, count_columns, refuse_missing, refuse_mixtures
from fedstein.data.dataset import Dataset, fixed_split, validate
from fedstein.data.dates import refuse_date_targets, refuse_integer_dates
from fedstein.data.encoding import LEAST_ROWS, Encoding, choose_encoding, known_categories, refuse_identifiers
from fedstein.data.file_sets import Paths, expand, owners_of
from fedstein.data.labels import codes, known_targets
from fedstein.data.labels import labels as labels_of
from fedstein.data.read_files import read_table
from fedstein.data.scaling import pooled, scale_rows, unscaled
from fedstein.data.spellings import refuse_cases, refuse_constants, refuse_foreign_labels
from fedstein.data.table import Table, listed, numbers, same_columns
from fedstein.data.tasks import choose_task
from fedstein.errors import InputError


def load_file(
    path: Paths,
    *,
    target: str | None = None,
    client: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[Any]] | Sequence[str] | None = None,
    missing: str | None = None,
    coding: str | None = None,
    labels: Sequence[str | int] | None = None,
    task: str | None = None,
    model_task: str | None = None,
    test_path: str | Path | None = None,
    test_fraction: float = 0.2,
    standardize: bool = True,
) -> Dataset:
    """Load a dataset from one file or several. The split and the scaling depend on the rows alone, not on a seed.

    Args:
        path: A CSV, Parquet or NPZ file, a folder, a pattern, or a list of these. Each of several files is a client.
        target: The column to predict; by default the last one, or the array y of an NPZ file.
        client: The column that names the client of each row, if there is one.
        features: The columns to predict from, in this order; by default all others.
        drop: Columns that are not used.
        categories: The categories of columns, or the columns whose categories are to be found. Text is a category
            in any case.
        missing: What to do with missing values: None refuses them; "mean", "mode", "indicator".
        coding: "one-hot" or "reference", see ``fedstein.data.encoding``.
        labels: The labels of a classification in the order of the classes; by default those of the rows, sorted.
        task: "classification" or "regression"; by default the targets decide.
        model_task: The task of the model that was chosen. It decides if the targets could be labels or numbers.
        test_path: A further file with the test rows.
        test_fraction: The share of rows that become test rows if there is no such file.
        standardize: Whether to scale features (and regression targets) by their mean and sd over the training rows.

    Returns:
        The dataset.

    Raises:
        InputError: If a file cannot be read or does not hold what is expected.
    """
    if not test_path and not 0 < test_fraction < 1:
        raise InputError(f"expected data.test_fraction between 0 and 1, got {test_fraction}; 0.2 is usual")
    files = expand(path)
    tables = _read_tables(files, target, client, features, drop or ())
    names = same_columns(tables) if features is None else tuple(features)
    target = tables[0].target_name
    held_out = _read_test(test_path, files, target, names)
    refuse_date_targets(tables, tuple(map(str, labels or ())))
    task = choose_task(tables, task, labels, model_task)
    label_names, y = _targets(tables, task, labels)
    client_names, owners = owners_of(tables, files)
    train, test = _split(y, owners, task, None if held_out else test_fraction)
    encoding = _encoding(tables, names, train, features, known_categories(categories), missing, coding)
    raw = np.concatenate([encoding.encode(table) for table in tables])
    places = {name: place for place, name in enumerate(encoding.feature_names)}
    plain = [each.name for each in encoding.columns if each.categories is None and each.name not in (features or ())]
    refuse_constants({name: raw[:, places[name]] for name in plain}, LEAST_ROWS, _called(tables))
    train_raw, train_y = raw[train], y[train]
    if held_out is None:
        test_raw, test_y = raw[test], y[test]
    else:
        known = label_names if task == "classification" else None
        test_raw = encoding.encode(held_out)
        test_y = known_targets(held_out, known, "remove the row or add such rows to the training file")
    name = _called(tables)
    if len(train_raw) == 0 or len(test_raw) == 0:
        raise InputError(
            f"{name}: expected training and test rows, got {len(train_raw)} and {len(test_raw)}; "
            "give more rows or change data.test_fraction"
        )
    scaling = unscaled(raw.shape[1])
    if standardize:
        scaling = pooled(train_raw, train_y if task == "regression" else None, encoding.binary_fills)
    train_x, train_y = scale_rows(train_raw, train_y, scaling)
    test_x, test_y = scale_rows(test_raw, test_y, scaling)
    return validate(
        Dataset(
            name=name,
            task=task,
            train_x=train_x,
            train_y=train_y,
            test_x=test_x,
            test_y=test_y,
            classes=len(label_names),
            feature_names=encoding.feature_names,
            mean=scaling.mean,
            scale=scaling.scale,
            target_mean=scaling.target_mean,
            target_scale=scaling.target_scale,
            label_names=label_names,
            target_name=target,
            client_names=client_names,
            client_of_row=None if owners is None else owners[train],
            encoding=encoding,
        )
    )


def load_features(path: str | Path, feature_names: Sequence[str], encoding: Encoding | None = None) -> np.ndarray:
    """Read the raw features of rows to predict for.

    Args:
        path: A CSV, Parquet or NPZ file. It may have further columns.
        feature_names: The columns to read if there is no encoding.
        encoding: How the columns of the run's own files were coded.

    Returns:
        Rows x features, float64, not scaled.

    Raises:
        InputError: If a column is missing, a value is not a finite number, or a category is unknown.
    """
    if encoding is not None:
        return encoding.encode(read_table(path, target="", features=encoding.names))
    return read_table(path, target="", features=feature_names).columns(tuple(feature_names))


def _read_tables(
    files: Sequence[Path],
    target: str | None,
    client: str | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
) -> list[Table]:
    if features is not None and (not features or len(set(features)) < len(features)):
        raise InputError(f"expected data.features to name columns, each once, got {list(features)}")
    tables: list[Table] = []
    for file in files:
        table = read_table(file, target=target, client=client, features=features, drop=drop)
        lacking = [name for name in features or () if name not in table.features]
        if lacking and table.named:
            raise InputError(
                f"{table.name}: expected the columns {listed(lacking)} (data.features), which are missing; add them "
                "to the file, or correct the names"
            )
        target = table.target_name  # all other files must have a column of this name too
        tables.append(table)
    there = frozenset[str]().union(*(table.dropped for table in tables))
    if unknown := [name for name in drop if name not in there]:
        raise InputError(
            f"{_called(tables)}: data.drop names columns that do not exist: {listed(unknown)}; the columns are "
            f"{listed(tables[0].feature_names)}"
        )
    return tables


def _called(tables: Sequence[Table]) -> str:
    """Return the name of the rows in messages."""
    return tables[0].name if len(tables) == 1 else f"{len(tables)} files"


def distinct_names(tables: Sequence[Table]) -> list[str]:
    """Return the name of each table in messages; tables with the same name are numbered."""
    names = [table.name for table in tables]
    return [name if names.count(name) == 1 else f"{name} ({place + 1})" for place, name in enumerate(names)]


def _read_test(path: str | Path | None, files: Sequence[Path], target: str, names: Sequence[str]) -> Table | None:
    if not path:
        return None
    there = Path(path).expanduser()
    if there.resolve() in {file.resolve() for file in files}:
        raise InputError(
            f"expected test rows that are not training rows, got data.test_path and data.path both {there.name}; "
            "name another file, or leave data.test_path out to hold rows back"
        )
    return read_table(there, target=target, features=names)


def _targets(
    tables: Sequence[Table], task: str, given: Sequence[str | int] | None
) -> tuple[tuple[str, ...], np.ndarray]:
    if task == "regression":
        return (), np.concatenate([numbers(table.targets, table, table.target_name) for table in tables])
    if given:
        known = tuple(str(label) for label in given)
        if len({normalised_label(label) for label in known}) < len(known):
            raise InputError(f"expected data.labels to list every label once, got {list(given)}; remove the repetition")
        remedy = "correct the label, remove the row, or add the label to data.labels"
        return known, np.concatenate([known_targets(table, known, remedy) for table in tables])
    found = [labels_of(table) for table in tables]
    column = tables[0].target_name
    refuse_foreign_labels(dict(zip(distinct_names(tables), found, strict=True)), column)
    names, classes = codes([label for labels in found for label in labels])
    refuse_cases(names, f"{_called(tables)}: column {column!r}", "list the labels in data.labels")
    return names, classes.astype(np.int32)


def _split(
    y: np.ndarray, owners: np.ndarray | None, task: str, fraction: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Split rows so that every class of every client contributes its share, and every client keeps a training row."""
    if fraction is None:
        return np.arange(len(y)), np.arange(0)
    classes = y.astype(np.int64) if task == "classification" else np.zeros(len(y), np.int64)
    clients = 0 if owners is None else int(owners.max()) + 1
    train, test = fixed_split(classes * (clients + 1) + (0 if owners is None else owners), fraction)
    if owners is None:
        return train, test
    without = np.setdiff1d(np.unique(owners), owners[train])
    if not len(without):
        return train, test
    back = np.array([test[owners[test] == client][0] for client in without])
    return np.sort(np.concatenate([train, back])), np.setdiff1d(test, back)


def _encoding(
    tables: Sequence[Table],
    names: Sequence[str],
    train: np.ndarray,
    features: Sequence[str] | None,
    categories: Mapping[str, Sequence[str]],
    missing: str | None,
    coding: str | None,
) -> Encoding:
    """Choose the encoding from the counts and sums of each table, as if the tables were on different machines."""
    if unknown := [name for name in categories if name not in names]:
        raise InputError(
            f"data.categories: expected names of feature columns, got {unknown[0]!r}; the features are {listed(names)}"
        )
    parts = [count_columns(table, names, categories=categories) for table in tables]
    where = _called(tables)
    total, filling = add_counts(parts), None
    refuse_mixtures(dict(zip(distinct_names(tables), parts, strict=True)), categories, where)
    refuse_integer_dates(tables, names, (*(features or ()), *categories))
    refuse_identifiers(total, features or (), categories, where)
    if missing is None:
        for table, part in zip(tables, parts, strict=True):
            refuse_missing(table, part, categories)
    if missing is not None:
        starts = np.cumsum([0, *(table.rows for table in tables)])
        inside = [train[(train >= a) & (train < b)] - a for a, b in pairwise(starts)]
        values = missing == "mode"
        filling = add_counts(
            [
                count_columns(table, names, categories=categories, rows=rows, values=values)
                for table, rows in zip(tables, inside, strict=True)
            ]
        )
    return choose_encoding(
        total,
        training=filling,
        named=features or (),
        categories=categories,
        missing=missing,
        coding=coding,
        where=where,
    )
