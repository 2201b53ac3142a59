"""What the package computes is what it computed when ``digests.json`` was written, to the last bit.

On the machine and the versions that the digests were made with, bits are compared; elsewhere the rounded numbers beside
them. After a change that is meant to change results: ``python tests/digests/compute.py --write``.
"""

from __future__ import annotations

import copy

import compare
import compute
import pytest
from cases import CASES, EVERYDAY
from covering import covering, meetings

SHARES = 4  # tests that can run at the same time


def test_every_case_is_written_down_and_no_other() -> None:
    assert list(compare.read()["cases"]) == list(CASES)
    assert set(EVERYDAY) < set(CASES)


def test_a_few_cases_are_as_they_were() -> None:
    assert compare.judge(compute.compute(EVERYDAY), compare.read()) == []


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_cases_with_every_pair_of_kinds_are_as_they_were(share: int) -> None:
    others = [name for name in covering() if name not in EVERYDAY]
    size = -(-len(others) // SHARES)  # neighbours share compiled programs, so a share is a stretch of the table
    chosen = others[share * size : (share + 1) * size]
    assert chosen
    assert compare.judge(compute.compute(chosen), compare.read()) == []


def test_the_covering_cases_are_a_part_of_the_table() -> None:
    chosen = covering()
    assert set(EVERYDAY) < set(chosen) < set(CASES)
    assert len(chosen) < 0.25 * len(CASES)
    met = set().union(*(meetings(CASES[name]) for name in chosen))
    assert met == set().union(*(meetings(case) for case in CASES.values()))


def test_on_the_same_machine_one_other_bit_is_found() -> None:
    expected = compare.read()
    found = copy.deepcopy(expected)
    entry = found["cases"]["dsvgd/blr/full/ksd-greedy"]
    assert compare.judge(found, expected) == []
    entry["rounds"][2] = "another"
    entry["particles"] = "another"
    assert compare.judge(found, expected) == [
        "dsvgd/blr/full/ksd-greedy: particles, rounds from the 3. on (near what it was)"
    ]


def test_elsewhere_other_bits_pass_and_other_numbers_do_not() -> None:
    expected = compare.read()
    found = copy.deepcopy(expected)
    found["fingerprint"]["jax"] = "another"
    entry = found["cases"]["dsvgd/blr/full/ksd-greedy"]
    entry["particles"] = "another"
    entry["near"]["metrics"]["nll"] *= 1.01
    assert compare.judge(found, expected) == []
    entry["near"]["metrics"]["nll"] *= 1.05
    entry["near"]["metrics"]["nll"] += 0.01
    assert len(compare.judge(found, expected)) == 1
    found["cases"]["pooled/blr"] = {"failed": "it did"}
    assert len(compare.judge(found, expected)) == 2
    entry["near"]["particles"][0] = None
    assert len(compare.judge(found, expected)) == 2


def test_digests_leave_out_what_a_clock_measured_and_nothing_else() -> None:
    line = {"round": 1, "seconds": 0.5, "reports": [0.1, None], "inner": {"seconds": 2.0, "rows": 3}}
    assert compute.of_json(line) == compute.of_json({**line, "seconds": 0.7, "inner": {"rows": 3}})
    assert compute.of_json(line) != compute.of_json({**line, "reports": [0.1 + 2**-56, None]})
