"""Options that several commands share, and the layout of the help texts."""

from __future__ import annotations

import glob
import inspect
import json
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import click
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from fedstein.errors import InputError

LONGEST = 300  # characters of the first sentence of a command's help


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


class WholeSentences(TyperGroup):
    """A group of commands whose help shows the first sentence of each command whole; click would cut it off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(limit=LONGEST)) for name, each in found if each and not each.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


ConfigFile = Annotated[
    Path | None,
    typer.Argument(metavar="[CONFIG.toml]", help="The config file. Without it, every setting has its default."),
]
Inputs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[CONFIG.toml] [FILE...]",
        help="The config file, and data files of your own: CSV, Parquet or NPZ, a folder, or a quoted pattern. Of "
        "several files each is a client.",
    ),
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


def split_inputs(inputs: list[Path] | None, settings: list[str] | None) -> tuple[Path | None, list[str]]:
    """Tell the config file from data files on a command line.

    Args:
        inputs: The arguments: at most one TOML file, and data files, folders or patterns.
        settings: The values of ``--set``.

    Returns:
        The config file, or None; and the settings, with the data files as ``data.path``.

    Raises:
        InputError: There are two config files, an argument is neither, or ``data.path`` is set besides.
    """
    configs = [path for path in inputs or [] if path.suffix.lower() in (".toml", "") and not _holds_data(path)]
    files = [path for path in inputs or [] if path not in configs]
    if len(configs) > 1:
        raise InputError(f"expected at most one config file, got {' and '.join(map(str, configs))}; name one")
    from fedstein.data.read_files import READERS  # imported here, so that --help needs no NumPy

    if odd := [path for path in files if path.suffix.lower() not in READERS and not _holds_data(path)]:
        raise InputError(
            f"expected a config file (.toml) or data files ({', '.join(READERS)}), got {odd[0]}; convert or rename it"
        )
    given = list(settings or [])
    if files and any(each.partition("=")[0].strip() == "data.path" for each in given):
        raise InputError("expected the data files once, got some as arguments and others in --set data.path=...")
    if files:
        given.append(f"data.path={json.dumps([str(path) for path in files], ensure_ascii=False)}")
    return (configs[0] if configs else None), given


def _holds_data(path: Path) -> bool:
    return path.is_dir() or (glob.has_magic(str(path)) and not path.exists())


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, only errors.")]
Log = Annotated[
    list[str] | None,
    typer.Option(
        metavar="tensorboard|mlflow|wandb", help="Also write the rounds to this logger (an extra); may be repeated."
    ),
]
