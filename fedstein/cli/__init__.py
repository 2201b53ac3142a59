"""The command line: parse, call, print. Wrong input is one line on standard error and exit code 2."""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``fedstein``."""
    import click
    import typer

    from fedstein.cli.app import app
    from fedstein.errors import FedsteinError

    try:
        code = typer.main.get_command(app)(args=arguments, prog_name="fedstein", standalone_mode=False)
    except click.UsageError as error:
        fail(error.format_message(), 2)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        fail("stopped", 1)
    except FedsteinError as error:
        fail(str(error), error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
    sys.exit(code or 0)


def fail(message: str, code: int) -> None:
    """One line, whatever the message looked like."""
    print("fedstein: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)
