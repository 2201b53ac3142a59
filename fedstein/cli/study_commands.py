"""The commands that run studies: ``compare``, ``reference``, ``reproduce``, ``tune`` and ``bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedstein.cli.options import Inputs, Preset, Quiet, Seed, Set, split_inputs
from fedstein.errors import InputError


def compare(
    inputs: Inputs = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION.KEY=A,B,...", help="The key to compare and its values; several --over give a grid."
        ),
    ] = None,
    settings: Set = None,
    seed: Seed = None,
    preset: Preset = None,
    seeds: Annotated[int, typer.Option(min=1, help="The number of seeds of every variant.")] = 5,
    fair: Annotated[
        bool,
        typer.Option(
            "--fair",
            help="Set everything else alike, also what has another default with some of the values; the result says "
            "what was set. Without it, the result lists what differs.",
        ),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many runs are active at once; default: one per core.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the runs and the report; default: one below runs/.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Compare settings: run every variant over the same seeds, and write a report with paired differences.

    The same command, or fedstein resume DIR, continues a comparison that was stopped. Finished runs are not repeated.

    \b
    Examples:
      fedstein compare --over selection.kind=round_robin,ksd,hip --seeds 5 --fair
      fedstein compare config.toml --over algorithm.particles=10,20 --over sites.kind=curvature,particles
    """
    from fedstein.cli.compare import compare_settings

    compare_settings(over or [], *split_inputs(inputs, settings), seed, preset, seeds, fair, jobs, out, quiet)


def reference(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR...", help="Folders of finished runs with at most 500 parameters."),
    ] = None,
    draws: Annotated[int, typer.Option(help="The number of draws that each chain keeps.")] = 1000,
    warmup: Annotated[int, typer.Option(help="The number of warm-up draws of each chain, which are discarded.")] = 300,
    chains: Annotated[int, typer.Option(help="The number of chains, at least two.")] = 4,
    seed: Annotated[int, typer.Option(help="The seed of the sampler. The runs have their own seeds.")] = 0,
    sbc: Annotated[
        bool, typer.Option("--sbc", help="Simulation-based calibration of small models, instead of folders.")
    ] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="With --sbc: only this model (blr, linear, poisson, ...); may be repeated."),
    ] = None,
    simulations: Annotated[
        int | None, typer.Option(help="With --sbc: simulations of each model; default: 200.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="With --sbc: the folder for the results; default: calibration.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure how far particles, draws and site Gaussian are from NUTS on the pooled data.

    The result is written to each run folder, where fedstein report finds it. With --sbc, check on simulated data
    whether intervals contain the truth as often as they say.

    \b
    Example:
      fedstein reference runs/first && fedstein report runs/first
      fedstein reference --sbc --simulations 100 --out calibration
    """
    from fedstein.cli.reference import calibrate, reference_runs
    from fedstein.studies.reference.nuts import Sampler

    if sbc:
        if folders:
            raise InputError("--sbc simulates its own rows; leave the folders out")
        calibrate(model or [], 200 if simulations is None else simulations, seed, out or Path("calibration"), quiet)
        return
    if model or simulations is not None or out is not None:
        raise InputError("--model, --simulations and --out go with --sbc")
    if not folders:
        raise InputError("expected folders of finished runs, or --sbc")
    reference_runs(folders, Sampler(chains, warmup, draws, seed), quiet)


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="fig1, fig2, fig3 or fig4: a figure of the paper. theory: section III. all: these five. Beyond the "
            "paper: selection, sites, draws, reports, several, shards, steps. pages: what --known alone gives.",
        ),
    ],
    seeds: Annotated[
        int | None, typer.Option(min=1, help="The number of seeds of every setting; default: 1 to 5.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="The number of rounds of every run; default: that of the setting.")
    ] = None,
    data: Annotated[
        str,
        typer.Option(metavar="embedded|full", help="The embedded samples, or the full datasets of fedstein data get."),
    ] = "embedded",
    density: Annotated[
        str,
        typer.Option(
            metavar="reference|log|both", help="The KDE of figures 1 to 3 and of theory. Figure 4 always has log."
        ),
    ] = "reference",
    order: Annotated[
        str | None,
        typer.Option(
            metavar="blocks|dealt|shuffled|all",
            help="How clients are numbered: in blocks by label, as the paper describes (the default of fig1 to fig4), "
            "as the partition deals them, or shuffled.",
        ),
    ] = None,
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            help="Add seeds, up to --seeds or 20, until an always-valid confidence sequence decides every claim.",
        ),
    ] = False,
    known: Annotated[
        Path | None,
        typer.Option(
            metavar="runs.csv",
            help="What was measured of runs before (experiments/orders/runs.csv). They are not run again; the claims "
            "are judged from them and the new runs together, which out/runs.csv then has.",
        ),
    ] = None,
    looks: Annotated[
        int,
        typer.Option(
            min=1,
            help="How often verdicts were looked at before seeds were added, this time included. Each look has its "
            "share of the error rate.",
        ),
    ] = 1,
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="blr30|blr120|bnn27|bnn120|...", help="Draw only this panel; may be repeated."),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant", "--arm", help="Draw only this curve, for instance curvature or pooled; may be repeated."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many runs are active at once; default: one per core.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder for runs, figures and pages. The same command continues there.")
    ] = Path("reproduction"),
    quick: Annotated[bool, typer.Option("--quick", help="Few rounds and seeds: minutes instead of hours.")] = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce the figures of the paper with error bars, and check which of its claims hold.

    \b
    selection the paper's schemes and others with curvature sites, in each order of clients
    pages     section IV sentence by sentence, and when selection pays, from the lines of --known
    theory    the indicators of section III against the true decrease of the free energies
    sites     curvature sites, the paper's sites and two references
    draws     the rules that select clients by their innovation
    reports   reports of all clients against cheaper ones
    several   several clients in a round
    shards    other datasets and partitions, with the default settings
    steps     the step sizes of these comparisons, chosen on held-out rows

    \b
    Examples:
      fedstein reproduce fig1 --quick
      fedstein reproduce fig2 --setting blr30 --order all --density both --seeds 10
      fedstein reproduce sites --setting bnn27 --variant curvature --variant pooled
      fedstein reproduce fig1 --setting bnn27 --density log --seeds 10 --known experiments/orders/runs.csv
    """
    from fedstein.cli.reproduce import reproduce_figures

    reproduce_figures(
        what,
        seeds,
        rounds,
        data,
        density,
        setting or [],
        jobs,
        out,
        quick,
        quiet,
        variant or [],
        order,
        until_decided,
        known,
        looks,
    )


def leaderboard(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="Tasks, methods, seeds and trials.")],
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="NAME", help="Run only this task of the plan; repeatable.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How many runs are active at once; default: one per core. 0: one after another in this process, "
            "which is faster for small runs.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder for trials, runs and the page. The same command continues there.")
    ] = Path("leaderboard"),
    quiet: Quiet = False,
) -> None:
    """Compare methods over tasks and seeds, each tuned with the same number of trials, and write one page.

    \b
    Example:
      fedstein leaderboard plan.toml --out board
      fedstein leaderboard plan.toml --task heart --jobs 0 --out board
    """
    from fedstein.cli.leaderboard import run_leaderboard

    run_leaderboard(plan, task or (), jobs, out, quiet)


def tune(
    inputs: Inputs = None,
    settings: Set = None,
    preset: Preset = None,
    grid: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="The step sizes to try; default: five around that of the config."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="The number of seeds of every step size, starting with that of the config.")
    ] = 3,
    fraction: Annotated[float, typer.Option(help="The share of the training rows to hold out for scoring.")] = 0.1,
    out: Annotated[Path, typer.Option(help="The JSON file for the trials. The same command continues with it.")] = Path(
        "tune.json"
    ),
    quiet: Quiet = False,
) -> None:
    """Choose algorithm.step_size on rows held out of the training rows. The test rows are not used.

    The command warns if the best value is at the edge of the grid.

    \b
    Example:
      fedstein tune --set selection.kind=hip --grid 0.01,0.02,0.05 --seeds 2
    """
    from fedstein.cli.tune import tune_steps

    tune_steps(*split_inputs(inputs, settings), preset, grid, seeds, fraction, out, quiet)


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer sizes and repeats: two minutes instead of twelve.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder for the tables, the numbers and the figure.")] = Path("bench"),
    threads: Annotated[int | None, typer.Option(min=1, help="The number of threads; default: one per core.")] = None,
    flower: Annotated[
        bool, typer.Option("--flower", help="Measure rounds and bytes on Flower instead, with three nodes here.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Measure the speed on this machine, relative to BlackJAX, NumPyro and bare matrix products. Needs fedstein[bench].

    \b
    Example:
      fedstein bench --quick --out bench
    """
    from fedstein.cli.bench import run_bench, run_flower_bench
    from fedstein.machine import cores

    if flower:
        run_flower_bench(quick, out, threads or 1, quiet)
    else:
        run_bench(quick, out, threads or cores(), quiet)
