"""The command ``fedstein bench``."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedstein.console import say
from fedstein.errors import InputError


def run_bench(quick: bool, out: Path, threads: int, quiet: bool) -> None:
    """Run the benchmark, write its files and print the main tables.

    Args:
        quick: Whether to measure fewer sizes with fewer repeats.
        out: The folder for the files.
        threads: The number of XLA threads.
        quiet: Whether to print nothing.

    Raises:
        InputError: If BlackJAX or NumPyro is not installed, or ``out`` is a file.
    """
    missing = [name for name in ("blackjax", "numpyro") if not find_spec(name)]
    if missing:
        raise InputError(
            f"fedstein bench compares with {' and '.join(missing)}; install with: pip install 'fedstein[bench]'"
        )
    if out.exists() and not out.is_dir():
        raise InputError(f"--out expects a folder, {out} is a file")
    os.environ["NPROC"] = str(threads)  # before JAX starts
    from fedstein.studies.bench.pipeline import bench
    from fedstein.studies.bench.write import tables, write_bench

    console = Console()
    if quiet:
        document = bench(quick, threads, lambda what: None)
    elif sys.stdout.isatty():
        with console.status("starting") as status:
            document = bench(quick, threads, lambda what: status.update(what))
    else:
        document = bench(quick, threads, lambda what: say(what))
    paths = write_bench(document, out)
    if quiet:
        return
    for title, columns, rows in tables(document):
        if title.startswith(("Goals", "One SVGD", "A round", "Start-up")):
            console.print(as_rich(title, columns, rows))
            console.print()
    say(f"{document['seconds'] / 60:.1f} minutes; written: {', '.join(map(str, paths))}")


def run_flower_bench(quick: bool, out: Path, threads: int, quiet: bool) -> None:
    """Measure rounds and bytes on Flower, write the files and print where they are.

    Args:
        quick: Whether to play fewer rounds.
        out: The folder for the files.
        threads: The number of XLA threads of each process.
        quiet: Whether to print nothing.

    Raises:
        InputError: If Flower is not installed, or ``out`` is a file.
    """
    if not find_spec("flwr"):
        raise InputError("fedstein bench --flower needs Flower; install it with: pip install 'fedstein[flower]'")
    if out.exists() and not out.is_dir():
        raise InputError(f"--out expects a folder, {out} is a file")
    os.environ["NPROC"] = str(threads)  # before JAX starts
    from fedstein.studies.bench.on_flower import measure
    from fedstein.studies.bench.write import write_page
    from fedstein.studies.bench.write_flower import markdown

    document = measure(quick, threads, (lambda what: None) if quiet else say)
    paths = write_page("flower", document, markdown(document), out)
    if not quiet:
        Console().print(markdown(document), markup=False, soft_wrap=True)
        say(f"written: {', '.join(map(str, paths))}")


def as_rich(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    """Build a table for the terminal."""
    grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    grid.title, grid.title_justify, grid.title_style = title, "left", "bold"
    for number, column in enumerate(columns):
        grid.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        grid.add_row(*row)
    return grid
