"""Rows of another kind: how well the uncertainty of finished runs tells them from the test rows of their task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedstein import data
from fedstein.errors import InputError
from fedstein.evaluation.ood import auroc, entropies
from fedstein.files import disk_errors, read_json, write_json
from fedstein.posterior import load
from fedstein.report.load import Run
from fedstein.runs.federate import load_dataset

MOST = 2_000  # rows of each kind that are compared


def foreign_scores(runs: Sequence[Run], dataset: str, memo: Path) -> tuple[float, ...]:
    """The area under the ROC curve of every run, by the entropy of its predictions.

    Args:
        runs: Finished runs of one task.
        dataset: The dataset whose test rows are foreign to the task.
        memo: The JSON file that keeps areas from one call to the next, by the name of the run.

    Returns:
        One number for each run.

    Raises:
        InputError: The task is a regression, or the foreign rows have another number of features.
    """
    known = read_json(memo, "areas under ROC curves") if memo.exists() else {}
    if lacking := [run for run in runs if run.path.name not in known]:
        own, other = load_dataset(runs[0].config), data.load(dataset)
        if own.task != "classification" or own.train_x.shape[1] != other.train_x.shape[1]:
            raise InputError(
                f"ood = {dataset!r}: expected a classification and {own.train_x.shape[1]} features as {own.name} has, "
                f"got {other.train_x.shape[1]} features; name another dataset"
            )
        rows = [(each.test_x[:MOST] * each.scale + each.mean) for each in (own, other)]
        for run in lacking:
            posterior = load(run.path)
            known[run.path.name] = auroc(*(entropies(posterior.predict(x)) for x in rows))
        with disk_errors(memo.parent):
            write_json(memo, known)
    return tuple(known[run.path.name] for run in runs)
