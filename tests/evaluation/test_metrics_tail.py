"""The tail of a run by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedstein.evaluation.metrics import NAMES, evaluated, tail


def line(number: int, **metrics: float | None) -> dict:
    return {"round": number, **dict.fromkeys(NAMES), **metrics}


def test_the_tail_is_the_last_quarter() -> None:
    values = np.random.default_rng(0).random(120)
    got = tail([line(i + 1, accuracy=float(v)) for i, v in enumerate(values)])
    assert got["accuracy"]["mean"] == pytest.approx(values[90:].mean())
    assert got["accuracy"]["sd"] == pytest.approx(values[90:].std(ddof=1))
    assert got["rmse"] == {"mean": None, "sd": None}


def test_rounds_that_were_not_evaluated_are_left_out() -> None:
    rounds = [line(i, nll=float(i)) if i % 5 == 0 else line(i) for i in range(1, 41)]
    assert tail(rounds)["nll"]["mean"] == (35 + 40) / 2


def test_one_evaluated_round_has_no_sd() -> None:
    assert tail([line(1, rmse=2.0)])["rmse"] == {"mean": 2.0, "sd": None}


def test_a_value_that_was_not_finite_leaves_no_mean() -> None:
    rounds = [line(i, accuracy=0.5, nll=None if i == 8 else 1.0) for i in range(1, 9)]
    assert tail(rounds)["nll"] == {"mean": None, "sd": None}
    assert tail(rounds)["accuracy"]["mean"] == 0.5


def test_no_rounds_no_tail() -> None:
    assert tail([]) == {m: {"mean": None, "sd": None} for m in NAMES}


def test_evaluated() -> None:
    assert evaluated(line(1, rmse=0.0))
    assert not evaluated(line(1))
