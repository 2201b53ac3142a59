"""The figures in the layout of the paper, their numbers, and the page of the claims."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedstein.files import disk_errors, write_bytes
from fedstein.report.load import Run, load_run
from fedstein.report.paper_figures import draw_panels
from fedstein.studies.markdown import table
from fedstein.studies.reproduce.claims import MEASURES, WORDS, Verdict, judge_all
from fedstein.studies.reproduce.compare import comparison
from fedstein.studies.reproduce.plan import BEYOND, FIGURES, SETTINGS, Job, Plan
from fedstein.studies.reproduce.sentences import Condition, judge_conditions, sentences_page
from fedstein.studies.reproduce.variants import VARIANTS

Curves = Mapping[tuple[str, str, str], Sequence[Run]]


def write_conditions(
    plans: Mapping[Condition, Plan], folders: Mapping[Job, Path], out: Path, command: str, rule: str = "student"
) -> list[Verdict]:
    """Write the results of every condition, and the page that decides section IV sentence by sentence.

    Args:
        plans: The plan of each condition. The files of one go to ``out``, those of several to
            ``out/<order>-<density>``.
        folders: The run folder of each job.
        out: The folder to write to.
        command: The command that makes the pages.
        rule: The kind of interval, a key of ``evidence.RULES``.

    Returns:
        The verdicts on the claims; with several conditions, of the first one.

    Raises:
        InputError: If a run folder is damaged or ``out`` is not writable.
    """
    results, curves = [], {}
    for condition, plan in plans.items():
        place = out if len(plans) == 1 else out / f"{condition.order}-{condition.density}"
        results.append(write_results(plan, folders, place, command, rule))
        curves[condition] = load_curves(plan, folders)
    if any(name in FIGURES for plan in plans.values() for name in plan.figures):
        page = sentences_page(judge_conditions(curves, rule), command, rule)
        with disk_errors(out):
            write_bytes(out / "sentences.md", page.encode())
    return results[0]


def load_curves(plan: Plan, folders: Mapping[Job, Path]) -> dict[tuple[str, str, str], list[Run]]:
    """Read the runs of a plan by (figure, setting, variant)."""
    return {key: [load_run(folders[job]) for job in jobs] for key, jobs in plan.curves.items()}


def write_results(
    plan: Plan, folders: Mapping[Job, Path], out: Path, command: str, rule: str = "student"
) -> list[Verdict]:
    """Write ``figN.png|svg|pdf|csv`` and the page: ``claims.md`` and ``claims.html``, or that of a comparison.

    Args:
        plan: The plan.
        folders: The run folder of each job.
        out: The folder to write to.
        command: The command that makes the page.
        rule: The kind of interval, a key of ``evidence.RULES``.

    Returns:
        The verdicts on the claims.

    Raises:
        InputError: If a run folder is damaged or ``out`` is not writable.
    """
    curves = load_curves(plan, folders)
    verdicts = judge_all(curves, rule)
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
            write_bytes(out / f"{name}.csv", table_of(name, curves).encode())
            if name in BEYOND:
                write_bytes(out / f"{name}.md", comparison(name, curves, command).encode())
        if any(name in FIGURES for name in plan.figures):
            write_bytes(out / "claims.md", markdown(verdicts, command).encode())
            write_bytes(out / "claims.html", as_html(verdicts, command).encode())
    return verdicts


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
    "runs with the same seed, that is the same partition and the same first particles. A claim holds when the interval "
    "is above zero, does not hold when it is below, and makes no difference that matters when the interval lies within "
    "±.005. The verdicts have Holm's correction over all comparisons of this page: the probability of any wrong "
    "verdict is 5%, so an interval that excludes zero can be undecided all the same. One seed gives no interval."
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


def markdown(verdicts: Sequence[Verdict], command: str) -> str:
    """Write the page of the claims as Markdown."""
    lines = [
        "# The paper's claims, measured",
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


def as_html(verdicts: Sequence[Verdict], command: str) -> str:
    """Write the page of the claims as HTML, with the figures."""
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
    )
    head = "".join(f"<th>{name}</th>" for name in HEAD)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Claims</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>The paper's claims, measured</h1><p><code>{html.escape(command)}</code></p><p>{EXPLAIN}</p>"
        f"<p>In all: {count_words(verdicts)}.</p>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{figures}</html>\n'
    )
