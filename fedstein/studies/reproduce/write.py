"""The figures in the layout of the paper, their numbers, and the page of the claims."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedstein.files import disk_errors, write_bytes
from fedstein.report.budget_figure import draw_budgets
from fedstein.report.dependence_figure import draw_dependence
from fedstein.report.load import Run, load_run
from fedstein.report.paper_figures import draw_panels
from fedstein.studies.markdown import table
from fedstein.studies.reproduce.claims import CLAIMS, MEASURES, WORDS, Verdict
from fedstein.studies.reproduce.compare import comparison
from fedstein.studies.reproduce.dependence import dependence_page, figure_panels
from fedstein.studies.reproduce.plan import BEYOND, FIGURES, SETTINGS, Job, Plan
from fedstein.studies.reproduce.run_lines import Lines, add_lines, measure_runs, merge_lines
from fedstein.studies.reproduce.sentences import Condition, judge_conditions, sentences_page
from fedstein.studies.reproduce.variants import VARIANTS

Curves = Mapping[tuple[str, str, str], Sequence[Run]]


def write_conditions(
    plans: Mapping[Condition, Plan],
    folders: Mapping[Job, Path],
    out: Path,
    command: str,
    rule: str = "student",
    known: Lines | None = None,
    looks: int = 1,
) -> list[Verdict]:
    """Write the results of every condition, and the page that decides section IV sentence by sentence.

    Args:
        plans: The plan of each condition. The files of one go to ``out``, those of several to
            ``out/<order>-<density>``.
        folders: The run folder of each job that has one. Figures are drawn from these.
        out: The folder to write to.
        command: The command that makes the pages.
        rule: The kind of interval, a key of ``evidence.RULES``.
        known: What was measured of runs before. The claims are judged from them and the runs together.
        looks: As in ``evidence.decide``.

    Returns:
        The verdicts on the claims; with several conditions, of the first one.

    Raises:
        InputError: If a run folder is damaged or ``out`` is not writable.
    """
    runs = {job: load_run(folder) for job, folder in folders.items()}
    lines = merge_lines(known or {}, measure_runs(runs))
    add_lines(lines, out / ("runs-full.csv" if any(job.full for job in runs) else "runs.csv"))
    results = []
    for condition, plan in plans.items():
        place = out if len(plans) == 1 else out / f"{condition.order}-{condition.density}"
        of_paper = any(name in FIGURES for name in plan.figures)
        verdicts = claim_verdicts(lines, condition, rule, looks) if of_paper else []
        write_results(plan.drawn(folders), runs, place, command, verdicts)
        results.append(verdicts)
    if any(name in FIGURES for plan in plans.values() for name in plan.figures):
        page = sentences_page(judge_conditions(lines, list(plans), rule, looks), command, rule, looks)
        with disk_errors(out):
            write_bytes(out / "sentences.md", page.encode())
    return results[0]


def claim_verdicts(lines: Lines, condition: Condition, rule: str = "student", looks: int = 1) -> list[Verdict]:
    """Judge the claims of one condition, decided over these alone, sorted by figure."""
    found = judge_conditions(lines, [condition], rule, looks, CLAIMS)[condition]
    return sorted(found.values(), key=lambda verdict: verdict.claim.figure)


def write_pages(lines: Lines, conditions: Sequence[Condition], out: Path, command: str, looks: int = 1) -> None:
    """Write the pages that need no curves: ``sentences.md``, the claims of each condition, and ``dependence.md``.

    Args:
        lines: What was measured of runs.
        conditions: The conditions of the paper's sites to judge.
        out: The folder to write to.
        command: The command that makes the pages.
        looks: As in ``evidence.decide``.

    Raises:
        InputError: If ``out`` is not writable.
    """
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        page = sentences_page(judge_conditions(lines, conditions, looks=looks), command, looks=looks)
        write_bytes(out / "sentences.md", page.encode())
        for condition in conditions:
            verdicts = claim_verdicts(lines, condition, looks=looks)
            page = markdown(verdicts, command, f": {condition.title}")
            write_bytes(out / f"claims-{condition.order}-{condition.density}.md", page.encode())
        write_bytes(out / "dependence.md", dependence_page(lines, command).encode())
        for ending, content in draw_dependence(figure_panels(lines)).items():
            write_bytes(out / f"dependence.{ending}", content)


def write_results(plan: Plan, runs: Mapping[Job, Run], out: Path, command: str, verdicts: Sequence[Verdict]) -> None:
    """Write ``figN.png|svg|pdf|csv`` and the page: ``claims.md`` and ``claims.html``, or that of a comparison.

    Args:
        plan: The plan, with jobs that have a run only.
        runs: The run of each job.
        out: The folder to write to.
        command: The command that makes the page.
        verdicts: The verdicts on the claims, for the figures of the paper.

    Raises:
        InputError: If ``out`` is not writable.
    """
    curves = {key: [runs[job] for job in jobs] for key, jobs in plan.curves.items()}
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        for name in plan.figures:
            panels = [
                (
                    f"({letter}) {SETTINGS[panel].title}",
                    [(VARIANTS[variant].title, curves[name, panel, variant]) for variant in plan.variants(name, panel)],
                )
                for letter, panel in zip("abcd", plan.panels(name), strict=False)
            ]
            for ending, content in draw_panels(panels, errors=name in BEYOND).items():
                write_bytes(out / f"{name}.{ending}", content)
            if name == "fig4":  # the only one whose curves cost differently in a round
                for ending, content in draw_budgets(panels[0][1]).items():
                    write_bytes(out / f"{name}-budgets.{ending}", content)
            write_bytes(out / f"{name}.csv", table_of(name, curves).encode())
            if name in BEYOND:
                write_bytes(out / f"{name}.md", comparison(name, curves, command).encode())
        if verdicts:
            write_bytes(out / "claims.md", markdown(verdicts, command).encode())
            write_bytes(out / "claims.html", as_html(verdicts, command, plan.figures).encode())


def table_of(figure: str, curves: Curves) -> str:
    """Return every evaluated round of every run of a figure as CSV."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["setting", "scheme", "seed", "round", "accuracy", "nll", "ece"])
    for (name, setting, variant), runs in curves.items():
        for run in runs if name == figure else ():
            for line in run.rounds:
                if line["accuracy"] is not None:
                    scores = [format(line[m], ".6g") if line[m] is not None else "" for m in ("accuracy", "nll", "ece")]
                    writer.writerow([setting, variant, run.seed, line["round"], *scores])
    return buffer.getvalue()


HEAD = ("figure", "setting", "claim", "measured", "effect (95% interval)", "seeds", "verdict")
EXPLAIN = (
    "A row is one comparison. The effect counts in favour of the claim; the 95% interval is over the differences of "
    "runs with the same seed, that is the same partition and the same first particles. A claim holds when the effect "
    "is shown to be above zero, does not hold when it is shown to be below, and makes no difference that matters when "
    "it is shown to be within ±.005 (two one-sided tests). The verdicts have Holm's correction over all comparisons of "
    "this page, for either kind of test: the probability of any wrong verdict is at most 5%, so an interval that "
    "excludes zero can be undecided all the same. One seed gives no interval."
)


def cells(verdict: Verdict) -> list[str]:
    """Return the row of a verdict."""
    claim = verdict.claim
    first, second = VARIANTS[claim.first].title, VARIANTS[claim.second].title
    pair = f"{first} {number(verdict.first)}, {second} {number(verdict.second)}"
    interval = "no interval" if verdict.low is None else f"{verdict.low:+.4f} to {verdict.high:+.4f}"
    return [
        claim.figure,
        SETTINGS[claim.setting].title,
        claim.text,
        f"{MEASURES[claim.measure]}: {pair}",
        f"{number(verdict.effect, '+')} ({interval})",
        str(verdict.seeds),
        verdict.word,
    ]


def number(value: float | None, sign: str = "") -> str:
    """Format a number with four decimals, or a dash."""
    return "–" if value is None else format(value, f"{sign}.4f")


def count_words(verdicts: Sequence[Verdict]) -> str:
    """Count the verdicts of each kind."""
    words = [verdict.word for verdict in verdicts]
    return ", ".join(f"{words.count(word)} {word}" for word in WORDS if word in words or word != WORDS[2])


def markdown(verdicts: Sequence[Verdict], command: str, of: str = "") -> str:
    """Write the page of the claims as Markdown."""
    lines = [
        f"# The paper's claims, measured{of}",
        "",
        f"`{command}`",
        "",
        EXPLAIN,
        "",
        f"In all: {count_words(verdicts)}.",
        "",
    ]
    lines += table(HEAD, [[*cells(v)[:-1], f"**{v.word}**"] for v in verdicts])
    return "\n".join(lines) + "\n"


STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.35rem .6rem;border-bottom:1px solid #8884;"
    "text-align:left;vertical-align:top}.wide{overflow-x:auto}.holds{color:#00794f}.not{color:#c04a00}"
    "@media(prefers-color-scheme:dark){body{background:#15181c;color:#e6e6e6}.holds{color:#4cc79a}.not{color:#ff9a5c}}"
    "img{max-width:100%;background:#fff;border-radius:6px}"
)


def as_html(verdicts: Sequence[Verdict], command: str, drawn: Sequence[str]) -> str:
    """Write the page of the claims as HTML, with the figures that were drawn."""
    kinds = {"holds": "holds", "does not hold": "not"}
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells(v)[:-1])
        + f'<td class="{kinds.get(v.word, "")}"><b>{v.word}</b></td></tr>'
        for v in verdicts
    )
    figures = "".join(
        f'<h2>{name}: {FIGURES[name].title}</h2><img src="{name}.svg" alt="{FIGURES[name].title}">'
        for name in dict.fromkeys(v.claim.figure for v in verdicts)
        if name in drawn
    )
    head = "".join(f"<th>{name}</th>" for name in HEAD)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Claims</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>The paper's claims, measured</h1><p><code>{html.escape(command)}</code></p><p>{EXPLAIN}</p>"
        f"<p>In all: {count_words(verdicts)}.</p>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{figures}</html>\n'
    )
