"""What the commands share: options with the same meaning everywhere, and the layout of their help."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import click
import typer
from typer.core import TyperArgument, TyperCommand


class PlainHelp(TyperCommand):
    """A command whose help is plain text and describes its arguments as well as its options."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        # Typer sets the help of an argument before click 8.5 resets it, so it is restored from the annotations.
        hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True) if self.callback else {}
        for parameter in self.params:
            for info in getattr(hints.get(parameter.name or ""), "__metadata__", ()):
                if isinstance(parameter, TyperArgument) and not parameter.help:
                    parameter.help = info.help

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing: typer lists the arguments together with the options, and click 8.5 would list them again."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the help. Typer escapes brackets for rich, which would print ``\\[required]``."""
        return super().get_help(ctx).replace("\\[", "[")


ConfigFile = Annotated[
    Path | None,
    typer.Argument(metavar="[CONFIG.toml]", help="The config file. Without it, every setting has its default."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one setting of the config; may be repeated."),
]
Seed = Annotated[int | None, typer.Option(help="The seed of the run; the same as --set seed=S.")]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="paper", help="paper: the sites and the steps of the paper. Explicit settings take precedence."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, only errors.")]
