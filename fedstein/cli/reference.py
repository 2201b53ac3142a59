"""The command ``fedstein reference``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedstein.cli.progress import show_share
from fedstein.console import say
from fedstein.runs.jax_setup import start_jax
from fedstein.studies.reference.nuts import ESS, RHAT, Sampler, require_numpyro
from fedstein.studies.reference.pipeline import (
    Group,
    Posterior,
    group_runs,
    known,
    open_finished,
    sample_posterior,
    write_reference,
)


def reference_runs(paths: list[Path], sampler: Sampler, quiet: bool) -> None:
    """Sample the posterior of each group of runs by NUTS, and write the distances to each run folder.

    Args:
        paths: The folders of finished runs.
        sampler: The settings of NUTS.
        quiet: Whether to print only warnings.

    Raises:
        InputError: If a setting or a run folder cannot be used.
    """
    sampler.check()
    unique = list({path.resolve(): path for path in paths}.values())
    runs = [open_finished(path) for path in unique]
    require_numpyro()
    start_jax(max((run.config for run in runs), key=lambda config: config.engine.threads))
    groups = group_runs(runs, sampler)
    found = [known(group) for group in groups]
    missing = sum(posterior is None for posterior in found)
    if not quiet:
        say(f"{count(len(runs), 'run')} with {count(len(groups), 'posterior')}; {plan(missing, sampler)}")
    references: dict[Path, dict[str, Any]] = {}
    with show_share(quiet) as on_progress:
        done = 0
        for group, posterior in zip(groups, found, strict=True):
            if posterior is None:
                doing = f"NUTS on {len(group.target.x):,} rows, posterior {done + 1} of {missing}"

                def on_share(share: float, before: int = done, doing: str = doing) -> None:
                    on_progress((before + share) / missing, doing)

                posterior = sample_posterior(group, sampler, on_share)
                done += 1
            warn(group, posterior)
            for run in group.runs:
                references[run.folder.path] = write_reference(run, group, posterior, sampler)
    if not quiet:
        console = Console(markup=False)
        with console.capture() as text:
            console.print(distance_table([(path, references[path]) for path in unique]))
        say(text.get().rstrip("\n"))
        for path in unique:
            if (quoted := references[path]["quoted"]) is not None:
                doubt = "" if quoted["trusted"] else " (its draws are not to be trusted)"
                say(
                    f"{path.name}: intervals agree with pooled NUTS: {quoted['within']} of {quoted['weights']} weights "
                    f"within 10%{doubt}"
                )
        named = " ".join(map(str, unique)) if len(unique) <= 3 else "with the same folders"
        say(f"reference.json is in each folder    figures: fedstein report {named}")


def plan(missing: int, sampler: Sampler) -> str:
    """Describe how many posteriors are to be sampled."""
    if not missing:
        return "the references of an earlier call are reused"
    return f"{missing} to sample: {sampler.chains} chains of {sampler.warmup} + {sampler.draws} draws"


def warn(group: Group, posterior: Posterior) -> None:
    """Print a warning on standard error if the chains of a reference cannot be trusted."""
    checks = posterior.diagnostics
    if not checks.trusted:
        names = ", ".join(run.folder.path.name for run in group.runs)
        print(
            f"fedstein: warning: this reference is not to be trusted: {count(checks.divergences, 'divergence')}, "
            f"split R-hat up to {checks.max_rhat:.3f} (wanted: {RHAT}), ESS down to {checks.min_ess:.0f} (wanted: "
            f"{ESS:.0f}); raise --warmup and --draws ({names})",
            file=sys.stderr,
        )


def distance_table(lines: list[tuple[Path, dict[str, Any]]]) -> Table:
    """Build a table with one line for each run, narrow enough for 80 columns."""
    grid = Table(box=None, header_style="bold", pad_edge=False)
    grid.add_column("run", overflow="fold")
    for heading in ("N", "mean offset\n(median, sd)", "sd ratio\n(median)", "KSD", "of N NUTS\ndraws"):
        grid.add_column(heading, justify="right")
    for path, reference in lines:
        ours, draws = reference["particles"], reference["draws"]
        values = (ours["mean_offset"]["median"], ours["sd_ratio"]["median"], ours["ksd"])
        scale = f"{draws['ksd']:.3g}" if draws else "-"
        grid.add_row(path.name, str(ours["count"]), *(f"{value:.3g}" for value in values), scale)
    return grid


def count(number: int, word: str) -> str:
    """Format a number with its noun in singular or plural."""
    return f"{number} {word}{'' if number == 1 else 's'}"
