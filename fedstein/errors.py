"""The two exceptions that users see. The command line turns each into one line and an exit code."""

from __future__ import annotations


class FedsteinError(Exception):
    """A failure that the user's input did not cause; the exit code is 1."""

    exit_code = 1


class InputError(FedsteinError):
    """Wrong input; the exit code is 2. The message says what was expected, what was found, and what to do."""

    exit_code = 2
