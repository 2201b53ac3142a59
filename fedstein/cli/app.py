"""The commands. Each one imports what it needs when it runs, so that ``--help`` is fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedstein.cli.deploy_app import deploy_app
from fedstein.cli.node import node_app
from fedstein.cli.options import Inputs, Log, PlainHelp, Preset, Quiet, Seed, Set, WholeSentences, split_inputs
from fedstein.cli.study_commands import bench, compare, leaderboard, reference, reproduce, tune
from fedstein.cli.summary import summary
from fedstein.cli.ui import ui
from fedstein.errors import InputError

app = typer.Typer(
    name="fedstein",
    cls=WholeSentences,
    help="Train one Bayesian model over data that never leaves its owners.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="List the datasets, and download the full ones.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")
app.add_typer(node_app, name="node")


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


app.command(cls=PlainHelp)(compare)
app.command(cls=PlainHelp)(leaderboard)


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
        console.print(note, highlight=False, markup=False)
    print(f"report: {result.html}")


app.command(cls=PlainHelp)(ui)
app.command(cls=PlainHelp)(reference)
app.command("summary", cls=PlainHelp)(summary)


@app.command(cls=PlainHelp)
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a finished run.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A CSV file with a header line, a Parquet file, or an NPZ file.")
    ],
    out: Annotated[Path | None, typer.Option(help="The CSV file to write; default: standard output.")] = None,
    posterior: Annotated[
        str | None,
        typer.Option(
            metavar="draws|particles|gaussian",
            help="draws: draws of prior and full sites (fedstein summary). particles: the particles of the run. "
            "gaussian: draws from the Gaussian of full sites. Default: weighted draws if the run has any, else "
            "particles.",
        ),
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=1, help="The number of draws of --posterior draws or gaussian; default: 200.")
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
    client: Annotated[str, typer.Option(metavar="NAME|ID", help="The client to remove, by name or by id.")],
    out: Annotated[Path, typer.Option(help="The folder for the run without the client, new or empty.")],
    quiet: Quiet = False,
) -> None:
    """Remove one client's site from a finished run, exclude the client, and move the particles to the new posterior.

    \b
    Examples:
      fedstein forget runs/first --client 3 --out runs/without-3
      fedstein forget runs/hospitals --client north --out runs/without-north
    """
    from fedstein.cli.forget import forget_client

    forget_client(folder, client, out, quiet)


@app.command(cls=PlainHelp)
def prune(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders, or folders that contain them.")],
    above: Annotated[
        float, typer.Option(metavar="MB", min=0, help="Prune runs whose sites take more than this many megabytes.")
    ] = 32.0,
    quiet: Quiet = False,
) -> None:
    """Free the disk space of what finished runs can compute again: the sites of their clients.

    Runs prune themselves when they finish. The command is for folders of earlier versions and for runs with
    checkpoint.keep = "all". Predicting, reporting, forgetting and resuming go on working.

    \b
    Examples:
      fedstein prune runs
      fedstein prune runs/first --above 0
    """
    from fedstein.cli.prune import prune_folders

    prune_folders(folders, above, quiet)


@app.command(cls=PlainHelp)
def audit(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A private run, the state-dir of a node, or a folder of ledgers.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print what each client of private runs has spent of its privacy budget, from the ledgers.

    \b
    Examples:
      fedstein audit runs/private
      fedstein audit state --json
    """
    from fedstein.cli.audit import show_audit

    show_audit(folder, as_json)


app.command(cls=PlainHelp)(reproduce)


app.command(cls=PlainHelp)(tune)


app.command(cls=PlainHelp)(bench)


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
    """List models, datasets, partitions, sites, schemes, methods, kernels, codecs and metrics by the names in configs.

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
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="covertype, mnist, fashion or protein: all rows. heart, contraception or exam: rows with clients.",
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Take the original files from this folder: heart, fashion and others."
        ),
    ] = None,
) -> None:
    """Fetch a dataset to the cache folder and check it.

    \b
    Examples:
      fedstein data get mnist
      fedstein data get heart --from downloads
    """
    from fedstein import data
    from fedstein.console import say

    path = data.get(name, progress=say, folder=folder)
    print(f"ready: {path}")
