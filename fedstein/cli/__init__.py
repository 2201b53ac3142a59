"""The command line: parse, call, print. Wrong input is one line on standard error and exit code 2."""

from __future__ import annotations

import os
import sys


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``fedstein``."""
    import click
    import typer

    from fedstein.cli.app import app
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
    except BrokenPipeError:  # whoever read the output has left
        silence()
        sys.exit(1)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 2)
    sys.exit(code or 0)


def say(text: str) -> None:
    """Print; whoever has stopped reading does not stop the work."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        silence()


def silence() -> None:
    """Send what is still to be printed nowhere, so that the end of the process has nothing to complain about."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - it lives as long as the process


def fail(message: str, code: int) -> None:
    """One line, whatever the message looked like."""
    print("fedstein: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)
