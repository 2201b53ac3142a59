"""The command ``fedstein reference``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedstein.cli.progress import show_share
from fedstein.console import say
from fedstein.errors import InputError
from fedstein.runs.jax_setup import start_jax
from fedstein.studies.reference.nuts import Sampler, require_numpyro
from fedstein.studies.reference.pipeline import (
    Group,
    group_runs,
    known,
    open_finished,
    sample_posterior,
    write_reference,
)
from fedstein.studies.reference.scores import Reference, doubts_of, verdict


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
                doing = f"NUTS on {group.target.rows:,} rows, posterior {done + 1} of {missing}"

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
            say(f"{path.name}: {verdict(references[path])}")
        named = " ".join(map(str, unique)) if len(unique) <= 3 else "with the same folders"
        say(f"reference.json is in each folder    figures: fedstein report {named}")


def plan(missing: int, sampler: Sampler) -> str:
    """Describe how many posteriors are to be sampled."""
    if not missing:
        return "the references of an earlier call are reused"
    return f"{missing} to sample: {sampler.chains} chains of {sampler.warmup} + {sampler.draws} draws"


def warn(group: Group, posterior: Reference) -> None:
    """Print a warning on standard error if the chains of a reference cannot be trusted."""
    checks = posterior.diagnostics
    if not checks.trusted:
        names = ", ".join(run.folder.path.name for run in group.runs)
        print(
            f"fedstein: warning: this reference is not to be trusted: {doubts_of(checks._asdict())}; "
            f"raise --warmup and --draws ({names})",
            file=sys.stderr,
        )


def calibrate(kinds: list[str], simulations: int, seed: int, out: Path, quiet: bool) -> None:
    """Run the studies of simulation-based calibration and write their ranks, a table and a figure.

    Args:
        kinds: The models; empty for all studies.
        simulations: The number of simulations of each model.
        seed: The seed of the studies.
        out: The folder for the results. The same command continues there.
        quiet: Whether to print nothing.

    Raises:
        InputError: There is no such study, a number is out of bounds, or the folder holds another study.
    """
    from fedstein.files import disk_errors, write_bytes
    from fedstein.report import rank_figure as figures
    from fedstein.report import style
    from fedstein.studies.reference import sbc
    from fedstein.studies.reference.simulations import chosen

    if not sbc.BINS <= simulations <= 100_000:
        raise InputError(f"expected --simulations from {sbc.BINS} to 100000, got {simulations}")
    studies = chosen(kinds)
    require_numpyro()
    results = {}
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        with show_share(quiet) as on_progress:
            for place, (name, study) in enumerate(studies.items()):

                def on_share(share: float, doing: str, place: int = place) -> None:
                    on_progress((place + share) / len(studies), doing)

                results[name] = sbc.run_study(study, simulations, seed, out / f"{name}.json", on_share)
            on_progress(1.0, "simulations")
        panels = {
            name: [
                figures.RankHistogram(parameter, counts, found.band(), f"90% covers {share:.1%}")
                for parameter, counts, share in zip(found.names, found.counts(), found.coverage(), strict=True)
            ]
            for name, found in results.items()
        }
        with style.style():
            write_bytes(out / "ranks.png", style.as_png(figures.rank_figure(panels)))
        write_bytes(out / "calibration.md", f"{sbc.table(results)}\n".encode())
    if not quiet:
        for name, found in results.items():
            say(sbc.overall(name, found))
        say(f"{out / 'ranks.png'} has the histograms, {out / 'calibration.md'} the table")


PARTS = {"particles": "particles", "gaussian": "site Gaussian", "quoted": "draws"}


def distance_table(lines: list[tuple[Path, dict[str, Any]]]) -> Table:
    """Build a table with a line for what each run offers, narrow enough for 80 columns."""
    grid = Table(box=None, header_style="bold", pad_edge=False)
    grid.add_column("run", overflow="fold")
    grid.add_column("")
    for heading in ("mean offset\nmedian, max", "sd ratio\nmin-max", "90% interval\ncovers", "same as\nNUTS (p)"):
        grid.add_column(heading, justify="right")
    for path, reference in lines:
        for place, (key, name) in enumerate((k, n) for k, n in PARTS.items() if reference[k] is not None):
            ours = reference[key]
            offset, ratio, covers = ours["mean_offset"], ours["sd_ratio"], ours["interval"]["coverage"]
            grid.add_row(
                "" if place else path.name,
                name,
                f"{offset['median']:.2f}, {offset['max']:.2f}",
                f"{ratio['min']:.2f}-{ratio['max']:.2f}",
                f"{covers['min']:.0%}-{covers['max']:.0%}",
                f"{ours['energy']['p_value']:.3f}",
            )
    grid.caption = (
        "Over the weights. Offsets in posterior sds; the last column: permutation test of the energy distance"
    )
    grid.caption_justify = "left"
    return grid


def count(number: int, word: str) -> str:
    """Format a number with its noun in singular or plural."""
    return f"{number} {word}{'' if number == 1 else 's'}"
