"""Completion and the bar, as people meet them."""

from __future__ import annotations

import pytest
from forked import fedstein

from fedstein.console import COMPILING, selected_clients, time_left


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
        found.append(estimate({"round": index, "selected": [0]}, now))
    assert found[:COMPILING] == [None] * COMPILING
    assert found[COMPILING] == pytest.approx(10 - COMPILING - 1)
    assert found[-1] == 0


def test_clients_of_other_sizes_that_compile_late_do_not_spoil_the_time_left():
    estimate, now = time_left(rounds=100), 0.0
    for index, client in enumerate([0, 1, 3, 0, 2, 2], start=1):  # files of four sizes: four rounds compile
        now += 8.0 if index in (1, 2, 3, 5) else 0.1
        left = estimate({"round": index, "selected": [client]}, now)
    assert left == pytest.approx(94 * 0.1)


def test_clients_are_listed_by_their_names_where_they_have_some():
    record = {"selected": [1, 0, 2]}
    assert selected_clients(record, ["oslo", "client-1", "bergen"]) == "1,oslo,bergen"
    assert selected_clients(record) == "1,0,2"


def test_the_list_of_commands_is_not_cut_off_and_a_mistake_gets_one_hint():
    shown = fedstein("--help").stdout
    assert "..." not in shown.partition("Commands:")[2]
    assert fedstein("rnu").stderr.count("Did you mean 'run'?") == 1
    assert 'write data.drop=["age"]' in fedstein("run", "--set", "data.name=file", "--set", "data.drop=age").stderr
