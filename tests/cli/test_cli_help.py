"""Completion and the bar, as people meet them."""

from __future__ import annotations

import pytest
from forked import fedstein

from fedstein.console import COMPILING, time_left


def test_the_shell_completes_commands_and_options():
    def complete(words: str, index: int) -> list[str]:
        variables = {"_FEDSTEIN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(index)}
        return fedstein(**variables).stdout.split()

    assert complete("fedstein re", 1) == ["resume", "report", "reference", "reproduce"]
    assert "--over" in complete("fedstein compare --o", 2)


def test_the_time_left_leaves_out_the_rounds_that_compile():
    estimate = time_left(rounds=10)
    now = 0.0
    found = []
    for index in range(1, 11):
        now += 40.0 if index <= COMPILING else 1.0
        found.append(estimate(index, now))
    assert found[:COMPILING] == [None] * COMPILING
    assert found[COMPILING] == pytest.approx(10 - COMPILING - 1)
    assert found[-1] == 0
