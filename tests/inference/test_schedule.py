"""The factor on the step size over the rounds of a run."""

from __future__ import annotations

import numpy as np
import pytest

from fedstein.inference.schedule import FLOOR, SCHEDULES, constant, cosine


def test_constant_is_one_in_every_round() -> None:
    assert {float(constant(7)(number)) for number in range(1, 8)} == {1.0}


def test_cosine_falls_from_one_to_its_floor_along_half_a_cosine() -> None:
    factors = [float(cosine(9)(number)) for number in range(1, 10)]
    assert factors[0] == 1
    assert factors[-1] == pytest.approx(FLOOR)
    assert factors[4] == pytest.approx((1 + FLOOR) / 2)
    assert np.all(np.diff(factors) < 0)
    assert factors[2] == pytest.approx(FLOOR + (1 - FLOOR) * (1 + np.cos(np.pi / 4)) / 2)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_of_one_round_takes_whole_steps(name: str) -> None:
    factor = SCHEDULES[name](1)(1)
    assert factor == 1
    assert isinstance(factor, np.float32)  # one type for the compiled step, in either precision
