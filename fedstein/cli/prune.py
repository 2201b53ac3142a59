"""The command ``fedstein prune``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedstein.cli.run import size
from fedstein.console import say
from fedstein.errors import InputError
from fedstein.report.find import is_run, runs_below
from fedstein.runs.pruning import prune_run


def prune_folders(folders: Sequence[Path], above: float, quiet: bool) -> None:
    """Prune the finished runs of folders.

    Args:
        folders: Run folders, or folders with runs below them.
        above: Megabytes of sites up to which a run is left as it is.
        quiet: Whether to print nothing.

    Raises:
        InputError: If a folder holds no run, or a run is in use or damaged.
    """
    freed = count = 0
    for folder in folders:
        runs = [folder] if is_run(folder) else list(runs_below(folder, [])) if folder.is_dir() else []
        if not runs:
            raise InputError(f"expected a run folder or a folder with runs below it, got {folder}; check the path")
        for run in runs:
            count += 1
            here = prune_run(run, int(above * 1e6))
            freed += here
            if here and not quiet:
                say(f"{run}: {size(here)} freed")
    if not quiet:
        say(f"{count} {'run' if count == 1 else 'runs'}, {size(freed)} freed")
