"""The commands. Each imports what it needs when it runs, so that ``--help`` is quick."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedstein.errors import InputError

app = typer.Typer(
    name="fedstein",
    help="One Bayesian model over data that never leaves its owners.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Datasets: what there is, and fetching the full ones.", no_args_is_help=True)
app.add_typer(data_app, name="data")
deploy_app = typer.Typer(
    help="Fedstein on Flower: clients in processes of their own. Needs fedstein[flower].", no_args_is_help=True
)
app.add_typer(deploy_app, name="deploy")

Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one setting of the config; may be repeated."),
]
Preset = Annotated[
    str | None, typer.Option(metavar="paper", help="paper: the paper's own sites and steps; other settings go on top.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, only errors.")]


def version(wanted: bool) -> None:
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


@app.command()
def run(
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Left out: a default run.")] = None,
    settings: Set = None,
    seed: Annotated[int | None, typer.Option(help="Same as --set seed=S.")] = None,
    preset: Preset = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder, new or empty; with --seeds the folder of theirs.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs with so many seeds from the first on, and their report; resumable.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="With --seeds: side by side; default: one a core.")] = None,
    quiet: Quiet = False,
) -> None:
    """Train a posterior: broadcast, report, choose, train, round by round. Leaves a run folder."""
    if seeds is not None:
        from fedstein.cli.seeding import run_seeds

        run_seeds(config, settings or [], seed, preset, seeds, jobs, out, quiet)
        return
    if jobs is not None:
        raise InputError("--jobs goes with --seeds: how many of them run side by side")
    from fedstein.cli.running import new_run

    new_run(config, settings or [], seed, preset, out, quiet)


@app.command()
def resume(folder: Annotated[Path, typer.Argument(metavar="DIR")], quiet: Quiet = False) -> None:
    """Continue an interrupted run from its last checkpoint, to the same result as if nothing had happened."""
    from fedstein.cli.running import resume_run

    resume_run(folder, quiet)


@app.command()
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run folders; seeds of one setting are grouped.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; default: DIR/report, or report for several.")
    ] = None,
) -> None:
    """Figures, tables and one HTML page from run folders."""
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


@app.command()
def reference(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Finished run folders of model.kind = blr.")],
    draws: Annotated[int, typer.Option(help="Draws of each chain that count.")] = 1000,
    warmup: Annotated[int, typer.Option(help="Draws of each chain before those.")] = 300,
    chains: Annotated[int, typer.Option(help="Chains, at least two.")] = 4,
    seed: Annotated[int, typer.Option(help="Of the sampler, not of the runs.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Measure particles against NUTS on the pooled data; fedstein report then shows it. Needs fedstein[nuts]."""
    from fedstein.cli.referencing import reference_runs
    from fedstein.reference.nuts import Sampler

    reference_runs(folders, Sampler(chains, warmup, draws, seed), quiet)


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV with a header line, Parquet, or NPZ with an array x.")
    ],
    out: Annotated[Path | None, typer.Option(help="A CSV file to write; default: standard output.")] = None,
    posterior: Annotated[
        str, typer.Option(metavar="particles|gaussian", help="gaussian: draws from the site Gaussian of full sites.")
    ] = "particles",
    draws: Annotated[int | None, typer.Option(min=1, help="Draws from the site Gaussian; default: 200.")] = None,
) -> None:
    """Predict with a finished run: class probabilities, or mean and standard deviation, one line a row."""
    from fedstein.cli.predicting import predict_file

    predict_file(folder, file, out, posterior, draws)


@app.command()
def forget(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A finished run with curvature sites.")],
    client: Annotated[int, typer.Option(help="The id of the client that leaves.")],
    out: Annotated[Path, typer.Option(help="The folder of the run without it; it must be new or empty.")],
    quiet: Quiet = False,
) -> None:
    """Take one client's site out of a finished run, bar it, and settle the particles on the others."""
    from fedstein.cli.forgetting import forget_client

    forget_client(folder, client, out, quiet)


@app.command()
def reproduce(
    what: Annotated[
        str, typer.Argument(metavar="fig1|fig2|fig3|fig4|theory|all|sites|draws|reports|several|shards|steps")
    ],
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds for every setting; default: 5, 3 or 1.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of every run; default: 150 or 100.")] = None,
    data: Annotated[str, typer.Option(metavar="embedded|full")] = "embedded",
    density: Annotated[
        str, typer.Option(metavar="reference|log", help="Of figures 1 to 3 and theory; figure 4 is log.")
    ] = "reference",
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="blr30|blr120|bnn27|bnn120|...", help="Only this panel of the figures; may be repeated."),
    ] = None,
    arm: Annotated[
        list[str] | None, typer.Option(help="Only this curve, such as curvature or pooled; may be repeated.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs side by side; default: one a core.")] = None,
    out: Annotated[Path, typer.Option(help="Runs, figures and claims; call again to go on.")] = Path("reproduction"),
    quick: Annotated[bool, typer.Option("--quick", help="Few rounds and seeds: minutes in place of hours.")] = False,
    quiet: Quiet = False,
) -> None:
    """The paper's figures with error bars, the numbers behind them, and which of its claims hold; ``theory``: section
    III, the indicators beside the true decrease of the free energies. ``all`` is every one of these. Beyond the paper:
    ``sites`` (curvature sites and references), ``draws`` (whom innovation draws), ``reports`` (cheaper reports),
    ``several`` (clients a round), ``shards`` (other data), ``steps`` (the step sizes of these, on held-out rows)."""
    from fedstein.cli.reproducing import reproduce_figures

    reproduce_figures(what, seeds, rounds, data, density, setting or [], jobs, out, quick, quiet, arm or [])


@app.command()
def tune(
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", help="As for run.")] = None,
    settings: Set = None,
    preset: Preset = None,
    grid: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Step sizes to try; default: five around the config's own.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds for every step size, from the config's on.")] = 3,
    fraction: Annotated[float, typer.Option(help="Share of the training rows that is held out for scoring.")] = 0.1,
    out: Annotated[Path, typer.Option(help="The trials, a JSON file; call again to go on.")] = Path("tune.json"),
    quiet: Quiet = False,
) -> None:
    """Choose algorithm.step_size on rows held out of the training rows; the test rows are not looked at."""
    from fedstein.cli.tuning import tune_steps

    tune_steps(config, settings or [], preset, grid, seeds, fraction, out, quiet)


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repeats: two minutes, not twelve.")] = False,
    out: Annotated[Path, typer.Option(help="Where the table, the numbers and the figure go.")] = Path("bench"),
    threads: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
    quiet: Quiet = False,
) -> None:
    """How fast it is here: beside BlackJAX, NumPyro and its own matrix products. Needs fedstein[bench]."""
    from fedstein.cli.benching import run_bench
    from fedstein.machine import cores

    run_bench(quick, out, threads or cores(), quiet)


@app.command("list")
def list_all() -> None:
    """Models, datasets, partitions, sites, schemes and algorithms by name."""
    from rich.console import Console

    from fedstein.cli.listing import registry_table

    Console(markup=False).print(registry_table())


@data_app.command("list")
def data_list() -> None:
    """Every dataset: rows, features, licence, and whether it is here."""
    from rich.console import Console

    from fedstein.cli.listing import dataset_table

    Console(markup=False).print(dataset_table())


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(metavar="NAME", help="covertype or mnist")]) -> None:
    """Fetch a full dataset into the cache folder, checked against its checksum."""
    from fedstein import data

    def say(line: str) -> None:
        print(line, flush=True)

    path = data.get(name, progress=say)
    print(f"ready: {path}")


@deploy_app.callback()
def _deploy() -> None:
    if not find_spec("flwr") or not find_spec("cryptography"):
        raise InputError("fedstein deploy needs Flower; install it with: pip install 'fedstein[flower]'")


@deploy_app.command("demo")
def deploy_demo(
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", help="As for run.")] = None,
    clients: Annotated[int | None, typer.Option(min=1, help="Clients, each a SuperNode; default: 3.")] = None,
    settings: Set = None,
    seed: Annotated[int | None, typer.Option(help="Same as --set seed=S.")] = None,
    preset: Preset = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt, and let in only nodes with a registered key.")] = False,
    out: Annotated[Path | None, typer.Option(help="The run folder: new, empty, or of a demo that goes on.")] = None,
    quiet: Quiet = False,
) -> None:
    """A SuperLink and SuperNodes as real processes on this machine: run the config through them, then stop them."""
    from fedstein.cli.deploying import demo

    demo(config, settings or [], seed, preset, clients, tls, out, quiet)


@deploy_app.command("app")
def deploy_app_folder(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the app goes: a pyproject.toml.")],
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", help="As for run.")] = None,
    nodes: Annotated[str | None, typer.Option(metavar="N|NAME,...", help="The nodes; default: as the config.")] = None,
    settings: Set = None,
    seed: Annotated[int | None, typer.Option(help="Same as --set seed=S.")] = None,
    preset: Preset = None,
    out: Annotated[Path | None, typer.Option(help="The run folder, on the server's machine.")] = None,
    host: Annotated[str, typer.Option(help="How nodes reach the link.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
) -> None:
    """Write the app folder for flwr run, and print the commands for the link and for each node."""
    from fedstein.cli.deploying import make_app

    make_app(folder, config, settings or [], seed, preset, nodes, out, host, port)


@deploy_app.command("certs")
def deploy_certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    host: Annotated[list[str] | None, typer.Option(help="A name or address of the link; may be repeated.")] = None,
    nodes: Annotated[str, typer.Option(metavar="N|NAME,...", help="Node keys to make.")] = "3",
    days: Annotated[int, typer.Option(help="How long the certificate is valid.")] = 90,
) -> None:
    """A CA, a link certificate and node keys for trials; real deployments bring their own."""
    from fedstein.cli.deploying import make_certs

    make_certs(folder, host or [], nodes, days)
