"""Scores of the final draws of a run, if it has draws to predict with in addition to its particles.

Rounds are evaluated with particles. A run with ``sites.expand = "variational"`` ends with weighted draws, which
``Posterior.predict`` uses, so the leaderboard compares the scores of these draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedstein.evaluation.metrics.scores import classification
from fedstein.files import disk_errors, read_json, write_json
from fedstein.posterior import load
from fedstein.report.load import Run
from fedstein.runs.federate import load_dataset
from fedstein.runs.kept_draws import WEIGHTED

Scores = dict[str, float | None]


def quoted_scores(runs: Sequence[Run], memo: Path) -> tuple[Scores, ...]:
    """The metrics of weighted draws on the test rows.

    Args:
        runs: Finished runs of one method on one task.
        memo: The JSON file that keeps scores from one call to the next, by the name of the run.

    Returns:
        The scores of each run; empty if not every run is a classification with such draws.
    """
    if not runs or not all((run.path / WEIGHTED).is_file() for run in runs):
        return ()
    known = read_json(memo, "scores of draws") if memo.exists() else {}
    if lacking := [run for run in runs if run.path.name not in known]:
        dataset = load_dataset(runs[0].config)
        if dataset.task != "classification":
            return ()
        rows = dataset.test_x * dataset.scale + dataset.mean
        for run in lacking:
            with np.errstate(divide="ignore"):
                log_probs = np.log(load(run.path).predict(rows))
            known[run.path.name] = dict(classification(log_probs, dataset.test_y))
        with disk_errors(memo.parent):
            write_json(memo, known)
    return tuple(known[run.path.name] for run in runs)
