"""The two kinds of failure a user meets; the command line turns them into one line and an exit code."""

from __future__ import annotations


class FedsteinError(Exception):
    """Something went wrong that is not the user's input: exit code 1."""

    exit_code = 1


class InputError(FedsteinError):
    """The user's input is wrong: exit code 2. The message says what was expected, what was got, what to do."""

    exit_code = 2
