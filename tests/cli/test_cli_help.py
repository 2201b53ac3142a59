"""Help, completion and the bar, as people meet them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
import typer

from fedstein.cli.app import app
from fedstein.progress import COMPILING, time_left


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command of the command line with its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_explains_itself_with_an_example_and_every_option(words):
    command = ALL[words]
    text = command.get_help(click.Context(command, info_name=" ".join(("fedstein", *words))))
    assert "\\[" not in text
    assert "Example" in text
    assert f"fedstein {' '.join(words)}" in text.partition("Example")[2]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name != "help":
            assert parameter.help, f"{parameter.name} has no help"


def test_the_shell_completes_commands_and_options():
    def complete(words: str, index: int) -> list[str]:
        variables = {"_FEDSTEIN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(index)}
        command = [sys.executable, "-c", "from fedstein.cli import main; main()"]
        done = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120, check=False
        )
        return done.stdout.split()

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
