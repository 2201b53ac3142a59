"""What the package computes is what it computed when ``digests.json`` was written, to the last bit.

On the machine and the versions that the digests were made with, bits are compared; elsewhere the rounded numbers beside
them. After a change that is meant to change results: ``python tests/digests/compute.py --write``.
"""

from __future__ import annotations

import copy

import compute
import pytest
from cases import CASES, EVERYDAY


def test_every_case_is_written_down_and_no_other() -> None:
    assert list(compute.read()["cases"]) == list(CASES)
    assert set(EVERYDAY) < set(CASES)


def test_a_few_cases_are_as_they_were() -> None:
    assert compute.judge(compute.compute(EVERYDAY), compute.read()) == []


@pytest.mark.slow
def test_all_other_cases_are_as_they_were() -> None:
    assert compute.judge(compute.compute(name for name in CASES if name not in EVERYDAY), compute.read()) == []


def test_on_the_same_machine_one_other_bit_is_found() -> None:
    expected = compute.read()
    found = copy.deepcopy(expected)
    entry = found["cases"]["dsvgd/blr/full/ksd-greedy"]
    assert compute.judge(found, expected) == []
    entry["rounds"][2] = "another"
    entry["particles"] = "another"
    assert compute.judge(found, expected) == [
        "dsvgd/blr/full/ksd-greedy: particles, rounds from the 3. on (near what it was)"
    ]


def test_elsewhere_other_bits_pass_and_other_numbers_do_not() -> None:
    expected = compute.read()
    found = copy.deepcopy(expected)
    found["fingerprint"]["jax"] = "another"
    entry = found["cases"]["dsvgd/blr/full/ksd-greedy"]
    entry["particles"] = "another"
    entry["near"]["metrics"]["nll"] *= 1.01
    assert compute.judge(found, expected) == []
    entry["near"]["metrics"]["nll"] *= 1.05
    entry["near"]["metrics"]["nll"] += 0.01
    assert len(compute.judge(found, expected)) == 1
    found["cases"]["pooled/blr"] = {"failed": "it did"}
    assert len(compute.judge(found, expected)) == 2
    entry["near"]["particles"][0] = None
    assert len(compute.judge(found, expected)) == 2


def test_digests_leave_out_what_a_clock_measured_and_nothing_else() -> None:
    line = {"round": 1, "seconds": 0.5, "reports": [0.1, None], "inner": {"seconds": 2.0, "rows": 3}}
    assert compute.of_json(line) == compute.of_json({**line, "seconds": 0.7, "inner": {"rows": 3}})
    assert compute.of_json(line) != compute.of_json({**line, "reports": [0.1 + 2**-56, None]})
