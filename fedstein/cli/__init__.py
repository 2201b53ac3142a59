"""The command line: parse, call, print. Invalid input gives one line on standard error and exit code 2."""

from __future__ import annotations

import sys


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
    from fedstein.errors import FedsteinError

    try:
        code = typer.main.get_command(app)(args=arguments, prog_name="fedstein", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        sys.exit(0)
    except click.UsageError as error:
        fail(error.format_message(), 2)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        fail("stopped", 1)
    except FedsteinError as error:
        fail(str(error), error.exit_code)
    except BrokenPipeError:  # the reader of the output has closed the pipe
        silence()
        sys.exit(1)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 2)
    sys.exit(code or 0)
