"""The page of a comparison of methods: scores, distances to the references, and what each of them cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedstein.report.load import Run
from fedstein.report.summary import paired_interval
from fedstein.reproduce.plan import ARMS, SETTINGS, figure_plan

HEAD = ("method", "accuracy", "sd within a run", "NLL", "ECE", "against pooled", "against FedAvg")
COSTS = ("method", "to reach", "rounds", "MB down", "MB up", "training", "sites", "reports", "seconds a round")
EXPLAIN = (
    "Scores are means over the last quarter of the rounds, then over seeds; differences are paired by seed (same "
    "rows, same start), with Student's 95% interval. FedAvg trains every client in every round, pooled SVGD sees all "
    "rows in one place; everybody else trains one client a round."
)


def comparison(
    name: str, panels: Sequence[str], curves: Mapping[tuple[str, str, str], Sequence[Run]], command: str
) -> str:
    """Markdown: two tables a setting."""
    figure = figure_plan(name)
    lines = [f"# {figure.title}", "", f"`{command}`", "", EXPLAIN, ""]
    for panel in panels:
        runs = {arm: curves[name, panel, arm] for arm in figure.arms}
        seeds, rounds = len(runs[figure.arms[0]]), runs[figure.arms[0]][0].rounds[-1]["round"]
        lines += [f"## {SETTINGS[panel].title}: {rounds} rounds, {seeds} seed{'s' if seeds > 1 else ''}", ""]
        lines += table(HEAD, [scores(arm, runs) for arm in figure.arms])
        goal = target(runs["pooled"])
        lines += [f"What it took to reach an accuracy of {goal:.3f} (pooled SVGD's less .01), mean over seeds:", ""]
        lines += table(COSTS, [costs(arm, runs[arm], goal) for arm in figure.arms])
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(r) + " |" for r in rows), ""]


def scores(arm: str, runs: Mapping[str, Sequence[Run]]) -> list[str]:
    mine = runs[arm]
    within = fmean(run.tail["accuracy"]["sd"] or 0.0 for run in mine)
    means = [mean_of(mine, metric) for metric in ("accuracy", "nll", "ece")]
    against = [gap(mine, runs[other]) if other != arm else "–" for other in ("pooled", "fedavg")]
    return [ARMS[arm].title, f"{means[0]:.4f}", f"{within:.4f}", f"{means[1]:.3f}", f"{means[2]:.3f}", *against]


def mean_of(runs: Sequence[Run], metric: str) -> float:
    return fmean(run.tail[metric]["mean"] or 0.0 for run in runs)


def gap(mine: Sequence[Run], theirs: Sequence[Run]) -> str:
    """The paired difference in tail accuracy."""
    other = {run.seed: run.tail["accuracy"]["mean"] or 0.0 for run in theirs}
    gaps = [(run.tail["accuracy"]["mean"] or 0.0) - other[run.seed] for run in mine if run.seed in other]
    mean, low, high = paired_interval(gaps)
    return f"{mean:+.4f}" if low is None else f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"


def target(pooled: Sequence[Run]) -> float:
    return mean_of(pooled, "accuracy") - 0.01


def costs(arm: str, runs: Sequence[Run], goal: float) -> list[str]:
    """Up to the first round from which the accuracy was reached; the whole run where it never was."""
    spans = [run.rounds[: reached(run, goal) or len(run.rounds)] for run in runs]
    everybody = all(reached(run, goal) for run in runs)

    down, up = (fmean([sum(line[key] for line in span) / 1e6 for span in spans]) for key in ("bytes_down", "bytes_up"))
    work = [
        fmean([sum(line["row_gradients"][kind] for line in span) / 1e6 for span in spans])
        for kind in ("train", "site", "report")
    ]
    seconds = fmean([fmean(line["seconds"] for line in span[1:] or span) for span in spans])
    return [
        ARMS[arm].title,
        "yes" if everybody else "not reached",
        f"{fmean([len(span) for span in spans]):.0f}",
        f"{down:.4g}",
        f"{up:.4g}",
        *(f"{amount:.3g}M" for amount in work),
        f"{seconds:.2f}",
    ]


def reached(run: Run, goal: float) -> int | None:
    """The first round with that accuracy."""
    return next((line["round"] for line in run.rounds if (line["accuracy"] or 0.0) >= goal), None)
