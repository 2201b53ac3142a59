"""The command line: parse, call, print. Invalid input gives one line on standard error and exit code 2."""

from __future__ import annotations

import os
import re
import sys
import traceback

from fedstein.errors import FedsteinError
from fedstein.plugin_errors import VARIABLE, explain


def main(arguments: list[str] | None = None) -> None:
    """Run the command line ``fedstein`` and end the process.

    Args:
        arguments: The words after ``fedstein``; by default those of the process.

    Raises:
        SystemExit: Always. The code is 0 on success, 2 for invalid input, and 1 for any other failure.
    """
    import click
    import typer

    from fedstein.cli.app import app
    from fedstein.console import fail, silence

    try:
        code = typer.main.get_command(app)(args=arguments, prog_name="fedstein", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        sys.exit(0)
    except click.UsageError as error:  # click and typer may both ask "Did you mean ...?"
        fail(re.sub(r"(Did you mean [^?]*\?)(?: \1)+", r"\1", error.format_message()), 2)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        fail("stopped", 1)
    except BrokenPipeError:  # the reader of the output has closed the pipe
        silence()
        sys.exit(1)
    except Exception as error:
        message, code = describe(error)
        if os.environ.get(VARIABLE, "0") not in ("", "0"):
            traceback.print_exception(error)
        fail(message, code)
    sys.exit(code or 0)


def describe(error: Exception) -> tuple[str, int]:
    """The line and the exit code for an exception that ended a command.

    Args:
        error: The exception.

    Returns:
        The line for the user, and the exit code.

    Raises:
        Exception: The exception itself, if neither the user's input nor a plug-in is the cause. That is a defect of
            Fedstein, and its traceback is shown.
    """
    if isinstance(error, FedsteinError):
        return str(error), error.exit_code
    if (failure := explain(error)) is not None:
        return str(failure), failure.exit_code
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error), 2
    raise error
