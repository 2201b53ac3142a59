"""Choosing a step size: rows held out once, trials kept, the best of the grid; test rows play no part."""

from __future__ import annotations

import numpy as np
import pytest

from fedstein.data import load
from fedstein.errors import InputError
from fedstein.runs.config import merge, resolve
from fedstein.runs.federate import facts_of
from fedstein.studies.tuning import Trial, best, hold_out, table, try_step, tune

SMALL = [
    "partition.clients=4",
    "partition.rows_per_client=60",
    "algorithm.particles=5",
    "algorithm.local_steps=3",
    "selection.kind=round_robin",
    "rounds=4",
    "engine.threads=1",
]


@pytest.fixture(scope="module")
def covertype():
    return load("covertype")


@pytest.fixture(scope="module")
def config(covertype):
    return resolve(merge({}, SMALL), facts_of(covertype))[0]


def test_held_out_rows_are_training_rows_of_every_label_and_no_longer_trained_on(covertype):
    held = hold_out(covertype, 0.1)
    assert len(held.test_x) == round(0.1 * len(covertype.train_x))
    assert len(held.train_x) + len(held.test_x) == len(covertype.train_x)
    both = np.concatenate([held.train_x, held.test_x])
    assert np.array_equal(np.sort(both.sum(axis=1)), np.sort(covertype.train_x.sum(axis=1)))
    assert abs(held.test_y.mean() - covertype.train_y.mean()) < 0.001
    again = hold_out(covertype, 0.1)
    assert np.array_equal(again.test_x, held.test_x)


def test_trials_are_kept_and_not_run_again(covertype, config, tmp_path, monkeypatch):
    held, out, grid = hold_out(covertype, 0.1), tmp_path / "tune.json", [0.01, 0.1]
    trials = list(tune(config, held, grid, 1, out))
    assert [(t.step_size, t.seed) for t in trials] == [(0.01, 0), (0.1, 0)]
    assert all(0.4 < t.accuracy < 1 for t in trials)
    monkeypatch.setattr("fedstein.studies.tuning.try_step", lambda *_: pytest.fail("it was there already"))
    assert list(tune(config, held, grid, 1, out)) == trials
    other = config.model_copy(update={"rounds": 5})
    with pytest.raises(InputError, match="another tuning"):
        next(tune(other, held, grid, 1, out))
    for damage in ('{"key": 1', "[]"):
        out.write_text(damage)
        with pytest.raises(InputError):
            next(tune(config, held, grid, 1, out))


def test_the_score_is_of_the_held_out_rows(covertype, config):
    """With their labels turned around the same run scores one minus what it scored."""
    from dataclasses import replace

    held = hold_out(covertype, 0.1)
    there = try_step(config, held, 0.05, 0)
    turned = try_step(config, replace(held, test_y=1 - held.test_y), 0.05, 0)
    assert there.accuracy + turned.accuracy == pytest.approx(1, abs=1e-3)


def test_the_best_is_the_best_mean_and_never_one_that_diverged():
    trials = [
        Trial(0.1, 0, 0.7, None, 0.5),
        Trial(0.1, 1, 0.8, None, 0.5),
        Trial(0.2, 0, 0.99, None, 0.1),
        Trial(0.2, 1, None, None, None),
        Trial(0.4, 0, 0.7, None, 0.6),
        Trial(0.4, 1, 0.7, None, 0.6),
    ]
    assert best(trials, [0.1, 0.2, 0.4]) == 0.1
    assert best([Trial(0.1, 0, None, 2.0, 1.0), Trial(0.2, 0, None, 1.0, 1.0)], [0.1, 0.2]) == 0.2
    assert best([Trial(0.1, 0, None, None, None)], [0.1]) is None
    assert [row["accuracy"] for row in table(trials, [0.1, 0.2])] == [pytest.approx(0.75), None]
