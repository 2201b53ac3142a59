"""The page of a comparison of methods: scores, differences from the references, goals, and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedstein.report.load import Run
from fedstein.report.paper_figures import counted
from fedstein.report.summary import paired_interval
from fedstein.studies.markdown import table
from fedstein.studies.reproduce.goals import check_goals, gaps, tail_mean
from fedstein.studies.reproduce.plan import SETTINGS, figure_plan
from fedstein.studies.reproduce.variants import VARIANTS

NAMES = {"pooled": "pooled", "fedavg": "FedAvg"}
KINDS = ("train", "site", "report")
COSTS = ("method", "to reach", "rounds", "MB down", "MB up", "training", "sites", "reports", "seconds a round")
ROUND = ("method", "MB down", "MB up", "training", "sites", "reports", "seconds")
GOALS = ("goal", "method", "reached", "")
EXPLAIN = (
    "Scores are means over the last quarter of the rounds, then over seeds; differences are paired by seed (same "
    "rows, same start), with Student's 95% interval. *Whole run* is the mean accuracy over all rounds. FedAvg trains "
    "every client in every round, pooled SVGD sees all rows in one place; every other method trains one client a round."
)


def comparison(name: str, curves: Mapping[tuple[str, str, str], Sequence[Run]], command: str) -> str:
    """Write the page as Markdown, with a section for each setting.

    Args:
        name: The name of the comparison.
        curves: The runs by (figure, setting, variant).
        command: The command that made the page.
    """
    figure = figure_plan(name)
    lines = [f"# {figure.title}", "", f"`{command}`", "", EXPLAIN, ""]
    for panel in dict.fromkeys(setting for given, setting, _ in curves if given == name):
        runs = {
            variant: mine for (given, setting, variant), mine in curves.items() if (given, setting) == (name, panel)
        }
        lines += section(panel, runs, [variant for variant in figure.against if variant in runs])
    return "\n".join(lines)


def section(panel: str, runs: Mapping[str, Sequence[Run]], against: Sequence[str]) -> list[str]:
    """Write the tables of one setting. ``against`` names the methods to compare with; the first one sets the target."""
    rounds = max(run.rounds[-1]["round"] for mine in runs.values() for run in mine)
    lines = [
        f"## {SETTINGS[panel].title}: {rounds} rounds, {counted(sorted({len(mine) for mine in runs.values()}))}",
        "",
    ]
    lines += [*table(head(against), [scores(variant, runs, against) for variant in runs]), ""]
    if "pooled" in runs:
        checked = [[c.text, VARIANTS[c.variant].title, c.measured, c.word] for c in check_goals(panel, runs)]
        lines += [*table(GOALS, checked), ""] if checked else []
    if against:
        goal = tail_mean(runs[against[0]]) - 0.01
        less = "pooled SVGD" if against[0] == "pooled" else VARIANTS[against[0]].title
        lines += [f"What it took to reach an accuracy of {goal:.3f} ({less}'s less .01), mean over seeds:", ""]
        lines += [*table(COSTS, [costs(variant, mine, goal) for variant, mine in runs.items()]), ""]
    lines += ["A round, mean over rounds and seeds (row-gradients: rows × particles differentiated):", ""]
    return [*lines, *table(ROUND, [per_round(variant, mine) for variant, mine in runs.items()]), ""]


def head(against: Sequence[str]) -> list[str]:
    """Return the headings of the table of scores."""
    compared = [f"against {NAMES.get(variant, VARIANTS[variant].title)}" for variant in against]
    return ["method", "accuracy", "sd within a run", "NLL", "ECE", *compared, "95% interval", "whole run", "seeds"]


def scores(variant: str, runs: Mapping[str, Sequence[Run]], against: Sequence[str] = ("pooled", "fedavg")) -> list[str]:
    """Return the row of a variant in the table of scores."""
    mine = runs[variant]
    within = fmean(run.tail["accuracy"]["sd"] or 0.0 for run in mine)
    means = [tail_mean(mine, metric) for metric in ("accuracy", "nll", "ece")]
    compared = [gap(mine, runs[other]) if other != variant else "–" for other in against]
    _, low, high = paired_interval([run.tail["accuracy"]["mean"] or 0.0 for run in mine])
    interval = "–" if low is None else f"{low:.4f} to {high:.4f}"
    all_of_it = fmean([fmean([r["accuracy"] for r in run.rounds if r["accuracy"] is not None]) for run in mine])
    shown = [f"{means[0]:.4f}", f"{within:.4f}", f"{means[1]:.3f}", f"{means[2]:.3f}"]
    return [VARIANTS[variant].title, *shown, *compared, interval, f"{all_of_it:.4f}", str(len(mine))]


def gap(mine: Sequence[Run], theirs: Sequence[Run]) -> str:
    """Format the paired difference in tail accuracy, with its interval."""
    differences = gaps(mine, theirs)
    if not differences:
        return "–"
    mean, low, high = paired_interval(differences)
    return f"{mean:+.4f}" if low is None else f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"


def costs(variant: str, runs: Sequence[Run], goal: float) -> list[str]:
    """Return the costs up to the first round that reached an accuracy, or of the whole run if no round did."""
    spans = [run.rounds[: reached(run, goal) or len(run.rounds)] for run in runs]
    everybody = all(reached(run, goal) for run in runs)

    down, up = (fmean([sum(line[key] for line in span) / 1e6 for span in spans]) for key in ("bytes_down", "bytes_up"))
    work = [fmean([sum(line["row_gradients"][kind] for line in span) / 1e6 for span in spans]) for kind in KINDS]
    seconds = fmean([fmean(line["seconds"] for line in span[1:] or span) for span in spans])
    return [
        VARIANTS[variant].title,
        "yes" if everybody else "not reached",
        f"{fmean([len(span) for span in spans]):.0f}",
        f"{down:.4g}",
        f"{up:.4g}",
        *(f"{amount:.3g}M" for amount in work),
        f"{seconds:.2f}",
    ]


def per_round(variant: str, runs: Sequence[Run]) -> list[str]:
    """Return the costs of a round. The time leaves out the first round, which compiles."""
    lines = [line for run in runs for line in run.rounds]
    later = [line for run in runs for line in run.rounds[1:] or run.rounds]
    moved = [fmean([line[key] for line in lines]) / 1e6 for key in ("bytes_down", "bytes_up")]
    work = [fmean([line["row_gradients"][kind] for line in lines]) for kind in KINDS]
    seconds = fmean([line["seconds"] for line in later])
    return [
        VARIANTS[variant].title,
        *(f"{amount:.3g}" for amount in moved),
        *(f"{amount:,.0f}" for amount in work),
        f"{seconds:.3f}",
    ]


def reached(run: Run, goal: float) -> int | None:
    """Return the first round with at least that accuracy, or None."""
    return next((line["round"] for line in run.rounds if (line["accuracy"] or 0.0) >= goal), None)
