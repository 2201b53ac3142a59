"""The commands. Each one imports what it needs when it runs, so that ``--help`` is fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedstein.cli.deploy_app import deploy_app
from fedstein.cli.options import Inputs, Log, PlainHelp, Preset, Quiet, Seed, Set, split_inputs
from fedstein.cli.summary import summary
from fedstein.errors import InputError

app = typer.Typer(
    name="fedstein",
    help="Train one Bayesian model over data that never leaves its owners.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="List the datasets, and download the full ones.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")


def version(wanted: bool) -> None:
    """Print the version and end the command, if the user asked for it."""
    if wanted:
        from fedstein import __version__

        print(f"fedstein {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    show: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(cls=PlainHelp)
def run(
    inputs: Inputs = None,
    settings: Set = None,
    seed: Seed = None,
    preset: Preset = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run folder, new or empty. With --seeds: the folder that holds the run folders."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Run this many consecutive seeds and write a report; the same command resumes."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="With --seeds: how many runs are active at once; default: one per core.")
    ] = None,
    log: Log = None,
    quiet: Quiet = False,
) -> None:
    """Train a posterior and write a run folder.

    In each round the server sends the particles to candidates, receives their reports, selects clients, lets them
    train, and applies their updates.

    \b
    Examples:
      fedstein run
      fedstein run config.toml --set rounds=50 --seed 1 --out runs/first
      fedstein run north.csv south.csv east.csv --set data.target=ill
      fedstein run --set selection.kind=hip --seeds 5
      fedstein run --log tensorboard
    """
    config, given = split_inputs(inputs, settings)
    if seeds is not None:
        from fedstein.cli.run_seeds import run_seeds

        run_seeds(config, given, seed, preset, seeds, jobs, out, quiet, log or [])
        return
    if jobs is not None:
        raise InputError("--jobs goes with --seeds: how many of them run side by side")
    from fedstein.cli.run import new_run

    new_run(config, given, seed, preset, out, quiet, log or [])


@app.command(cls=PlainHelp)
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


@app.command(cls=PlainHelp)
def resume(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The folder of a run, or of the runs of run --seeds or compare."),
    ],
    rounds: Annotated[
        int | None, typer.Option(min=1, help="A new total of rounds; a finished run goes on with it.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="For a folder of several runs: how many are active at once; default: one per core."),
    ] = None,
    log: Log = None,
    quiet: Quiet = False,
) -> None:
    """Continue an interrupted run from its last checkpoint. The result is the same as without the interruption.

    With --rounds, a finished run goes on too. With a constant step size the result is that of a run that was started
    with that many rounds, bit for bit. A cosine schedule depends on the total, and the command says so.

    \b
    Examples:
      fedstein resume runs/first
      fedstein resume runs/first --rounds 200
      fedstein resume runs/five-seeds --jobs 2
    """
    from fedstein.cli.resume import resume_folder

    resume_folder(folder, rounds, jobs, quiet, log or [])


@app.command(cls=PlainHelp)
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Run folders, or folders that contain them. Runs that differ only in the seed are grouped.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to write to; default: DIR/report for one folder, ./report for several."),
    ] = None,
) -> None:
    """Write figures, tables and one HTML page from run folders.

    \b
    Examples:
      fedstein report runs/first
      fedstein report runs
      fedstein report runs/ksd-* runs/hip-* --out comparison
    """
    from rich.console import Console

    from fedstein.report import distance_table, table, write_report

    result = write_report(folders, out)
    console = Console()
    console.print(table(result.rows))
    if (distances := distance_table(result.rows)) is not None:
        console.print()
        console.print(distances)
    for note in result.notes:
        console.print(note, highlight=False)
    print(f"report: {result.html}")


@app.command(cls=PlainHelp)
def reference(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of finished runs with at most 500 parameters.")
    ],
    draws: Annotated[int, typer.Option(help="The number of draws that each chain keeps.")] = 1000,
    warmup: Annotated[int, typer.Option(help="The number of warm-up draws of each chain, which are discarded.")] = 300,
    chains: Annotated[int, typer.Option(help="The number of chains, at least two.")] = 4,
    seed: Annotated[int, typer.Option(help="The seed of the sampler. The runs have their own seeds.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Measure how far particles, draws and site Gaussian are from NUTS on the pooled data.

    The result is written to each run folder, where fedstein report finds it.

    \b
    Example:
      fedstein reference runs/first && fedstein report runs/first
    """
    from fedstein.cli.reference import reference_runs
    from fedstein.studies.reference.nuts import Sampler

    reference_runs(folders, Sampler(chains, warmup, draws, seed), quiet)


app.command("summary", cls=PlainHelp)(summary)


@app.command(cls=PlainHelp)
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a finished run.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A CSV file with a header line, a Parquet file, or an NPZ file.")
    ],
    out: Annotated[Path | None, typer.Option(help="The CSV file to write; default: standard output.")] = None,
    posterior: Annotated[
        str,
        typer.Option(
            metavar="particles|gaussian",
            help="particles: the particles of the run. gaussian: draws from the Gaussian of sites with full structure.",
        ),
    ] = "particles",
    draws: Annotated[
        int | None, typer.Option(min=1, help="The number of draws of --posterior gaussian; default: 200.")
    ] = None,
) -> None:
    """Predict with a finished run: class probabilities, or mean and standard deviation, one line for each row.

    \b
    Example:
      fedstein predict runs/first new-patients.csv --out predictions.csv
    """
    from fedstein.cli.predict import predict_file

    predict_file(folder, file, out, posterior, draws)


@app.command(cls=PlainHelp)
def forget(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a finished run with curvature sites.")],
    client: Annotated[int, typer.Option(help="The id of the client to remove.")],
    out: Annotated[Path, typer.Option(help="The folder for the run without the client, new or empty.")],
    quiet: Quiet = False,
) -> None:
    """Remove one client's site from a finished run, exclude the client, and move the particles to the new posterior.

    \b
    Example:
      fedstein forget runs/first --client 3 --out runs/without-3
    """
    from fedstein.cli.forget import forget_client

    forget_client(folder, client, out, quiet)


@app.command(cls=PlainHelp)
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="fig1, fig2, fig3 or fig4: a figure of the paper. theory: section III. all: these five. Beyond the "
            "paper: sites, draws, reports, several, shards, steps.",
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
        typer.Option(metavar="reference|log", help="The KDE of figures 1 to 3 and of theory. Figure 4 always has log."),
    ] = "reference",
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
      fedstein reproduce sites --setting bnn27 --variant curvature --variant pooled
    """
    from fedstein.cli.reproduce import reproduce_figures

    reproduce_figures(what, seeds, rounds, data, density, setting or [], jobs, out, quick, quiet, variant or [])


@app.command(cls=PlainHelp)
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


@app.command(cls=PlainHelp)
def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer sizes and repeats: two minutes instead of twelve.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder for the tables, the numbers and the figure.")] = Path("bench"),
    threads: Annotated[int | None, typer.Option(min=1, help="The number of threads; default: one per core.")] = None,
    quiet: Quiet = False,
) -> None:
    """Measure the speed on this machine, relative to BlackJAX, NumPyro and bare matrix products. Needs fedstein[bench].

    \b
    Example:
      fedstein bench --quick --out bench
    """
    from fedstein.cli.bench import run_bench
    from fedstein.machine import cores

    run_bench(quick, out, threads or cores(), quiet)


@app.command("config", cls=PlainHelp)
def show_config(
    inputs: Annotated[list[Path] | None, typer.Argument(metavar="[CONFIG.toml] [FILE...]", help="As for run.")] = None,
    settings: Set = None,
    preset: Preset = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print docs/config.md instead: the keys of every kind.")
    ] = False,
) -> None:
    """Every key of the config: type, bounds, meaning, and the default that it has with these settings.

    \b
    Example:
      fedstein config --set data.name=mnist
    """
    from fedstein.cli import config as command

    command.show_config(*split_inputs(inputs, settings), preset, markdown)


@app.command("list", cls=PlainHelp)
def list_all() -> None:
    """List models, datasets, partitions, sites, selection schemes and algorithms by the names that a config uses.

    \b
    Example:
      fedstein list
    """
    from rich.console import Console

    from fedstein.cli.listing import registry_table

    Console(markup=False).print(registry_table())


@data_app.command("list", cls=PlainHelp)
def data_list() -> None:
    """List every dataset: rows, features, licence, and whether it is on this machine.

    \b
    Example:
      fedstein data list
    """
    from rich.console import Console

    from fedstein.cli.listing import dataset_table

    Console(markup=False).print(dataset_table())


@data_app.command("get", cls=PlainHelp)
def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The full dataset to download: covertype or mnist.")],
) -> None:
    """Download a full dataset to the cache folder and verify its checksum.

    \b
    Example:
      fedstein data get mnist
    """
    from fedstein import data
    from fedstein.console import say

    path = data.get(name, progress=say)
    print(f"ready: {path}")
