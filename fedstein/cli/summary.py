"""The command ``fedstein summary``. Imports wait until it runs, so that ``--help`` is fast."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer

MOST = 60  # rows that are shown unless all are asked for
USABLE = ("draws", "weighted", "nuts", "gaussian", "particles")


def summary(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a finished run.")],
    posterior: Annotated[
        str | None,
        typer.Option(
            metavar="draws|weighted|nuts|gaussian|particles",
            help="What to summarise; default: weighted draws, else draws of NUTS, if sites are full.",
        ),
    ] = None,
    units: Annotated[
        str,
        typer.Option(
            metavar="scaled|own",
            help="Parameters for standardised features, or in the units of the data.",
        ),
    ] = "scaled",
    everything: Annotated[bool, typer.Option("--all", help=f"Show more than {MOST} parameters.")] = False,
) -> None:
    """Mean, sd, median and 90% interval of each parameter, and whether they are to be trusted.

    Draws are made when they are first asked for and kept in the folder. Without full sites the particles are
    summarised, which are too narrow to quote intervals from; the exit code is then 2.

    \b
    Example:
      fedstein summary runs/first
    """
    from rich.console import Console
    from rich.table import Table

    from fedstein.console import say
    from fedstein.errors import InputError
    from fedstein.inference.summary import COLUMNS
    from fedstein.runs.folder import RunFolder
    from fedstein.runs.jax_setup import start_jax

    if posterior is not None and posterior not in USABLE:
        raise InputError(f"--posterior expects draws, weighted, nuts, gaussian or particles, got {posterior!r}")
    opened, config = RunFolder.open(folder)
    opened.read_posterior()
    start_jax(config)
    from fedstein.posterior import NO_SITES, load

    found = load(folder)
    table = found.table(posterior, units)
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for i, heading in enumerate(COLUMNS):
        grid.add_column(heading, justify="right" if i else "left", no_wrap=bool(i), overflow="fold")
    cells = table.cells()
    for line in cells if everything else cells[:MOST]:
        grid.add_row(*line)
    console = Console(markup=False, highlight=False)
    with console.capture() as text:
        console.print(grid)
    say(text.get().rstrip("\n"))
    if len(cells) > MOST and not everything:
        say(f"... and {len(cells) - MOST} more; --all shows them")
    if table.using == "particles" and found.sums is None:
        say("from the particles")
        raise InputError(f"{folder}: {NO_SITES}")
    verdict = table.verdict().splitlines()
    say("\n".join(fill(line, console.width) if console.is_terminal else line for line in verdict))
