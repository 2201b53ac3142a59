"""One self-contained HTML page: numbers, figures, the configuration, and the commands to repeat the runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from shlex import quote
from typing import Any

from fedstein.report import style
from fedstein.report.client_evaluation import client_columns, client_range
from fedstein.report.figures import RenderedFigure
from fedstein.report.groups import ABSENT, Group, show
from fedstein.report.nuts_distance import distance_columns
from fedstein.report.summary import Summary
from fedstein.report.tables import Column, Row, difference_columns, in_text, result_columns, run_columns

CAPTIONS = {
    "curves": "Learning curves: the metrics of the evaluated rows after each round.",
    "cost": "Cost: the leading metric against what the rounds have cost so far, which is the array bytes sent between "
    "server and clients in both directions, the row-gradients, and the seconds in rounds.",
    "reliability": "Calibration after the last round: accuracy in each of 15 bins of confidence; points under the "
    "dashed line are overconfident. Bins with few rows are faded. Below, the share of rows in each bin.",
    "selection": "The number of rounds in which each client was selected to train.",
    "distances": "Distance from NUTS: each dot is a weight; a diamond is log ξ or another parameter that is not a "
    "weight. Left: the standard deviation of the particles divided by that of the posterior, with the median over the "
    "weights as a bar. Left of the line the particles are too narrow, right of it they are too wide. Right: the offset "
    "of their mean in posterior standard deviations; the band is ±0.5.",
    "clients": "The score of each client on its own held-out rows, the worst first. A larger dot stands for more rows.",
}
SEVERAL_SEEDS = {
    "curves": "Lines are means over seeds; bands run from the lowest to the highest seed.",
    "cost": "Lines are means over seeds; bands run from the lowest to the highest seed.",
    "reliability": "All seeds together.",
    "selection": "Bars are means over seeds.",
    "distances": "All seeds together.",
    "clients": "Each line is one seed.",
}
SPREAD = " and then over seeds, ± the standard deviation between seeds"
READING = {
    "Tail": "mean over the evaluated rounds of the last quarter of a run; steadier than the last round alone.",
    "±": "standard deviation of the tail between seeds (n − 1).",
    "sd within run": "standard deviation over the rounds of the tail: how much a run still moves.",
    "NLL": "mean negative log-likelihood of a test row, natural logarithm; lower is better.",
    "ECE": "expected calibration error: the mean gap between confidence and accuracy over 15 bins; lower is better.",
    "RMSE": "root mean squared error in the units of the target; lower is better.",
    "Down, up": "array bytes of the messages from server to clients and back.",
    "95% interval": "t interval of the difference, paired by seed; not corrected for the number of comparisons.",
}
FROM_NUTS = {
    "Mean offset": "how far the mean of the particles is from the posterior mean, in posterior standard deviations: "
    "the median and the maximum over the weights, and log ξ separately.",
    "sd ratio": "standard deviation of the particles over that of the posterior: 1 is correct; below 1 the particles "
    "are overconfident.",
    "KSD": "Kernelized Stein Discrepancy of the particles to the true global posterior, with the score of every row "
    "and SVGD's kernel and bandwidth; lower is better.",
    "NUTS draws": "the same number of draws of the reference, evaluated by the same formulas: the distance of a "
    "perfect sample of that size.",
}
SCRIPTS = ("echarts.min.js", "charts.js", "sections.js")
_VARIABLES = {style.INK: "--ink", style.MUTED: "--muted", style.GRID: "--grid", style.PAPER: "--card"}


def render(
    summary: Summary,
    rows: Sequence[Row],
    figures: Sequence[RenderedFigure],
    views: dict[str, Any],
    paragraph: str,
    bibtex: str,
) -> str:
    """Render the page.

    Args:
        summary: The groups of runs.
        rows: The rows of the report.
        figures: The figures, for readers without JavaScript.
        views: The views of the runs, which the page draws itself.
        paragraph: The paragraph on methods.
        bibtex: The references of that paragraph.

    Returns:
        The HTML.
    """
    several = any(len(s.group.runs) > 1 for s in summary.groups)
    body = [
        f"<h1>{escape(_title(summary))}</h1>",
        f'<p class="lead">{escape(_lead(summary))}</p>',
        *_notes(summary),
        "<h2>Results</h2>",
        f'<p class="small">Means over the last quarter of the rounds{SPREAD if several else ""}.</p>',
        _table(result_columns(rows), _keys(summary)),
        *_differences(summary, rows),
        *_from_nuts(summary, rows),
        "<h2>What one sees</h2>",
        '<div id="views"></div>',
        "<noscript>",
        '<p class="small">Interactive figures need JavaScript. These are the files of the folder figures.</p>',
        *(_figure(figure, several) for figure in figures),
        "</noscript>",
        *_by_client(summary),
        "<h2>What was run</h2>",
        *_configuration(summary),
        "<h2>Every run</h2>",
        _table(run_columns(rows)),
        "<h2>How to repeat it</h2>",
        *_repeat(rows),
        "<h2>Methods, to quote</h2>",
        f"<p>{escape(paragraph)}</p>",
        f"<details><summary>BibTeX</summary><pre>{escape(bibtex)}</pre></details>",
        "<h2>How to read the numbers</h2>",
        _definitions(summary),
        _drawing(views),
    ]
    css = static("page.css")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(_title(summary))}</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def static(name: str) -> str:
    """The text of a file that ships with the page."""
    return files("fedstein.report").joinpath("static", name).read_text("utf-8")


def embedded_json(value: Any) -> str:
    """JSON that can stand inside a script element, whatever text it holds."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _drawing(views: dict[str, Any]) -> str:
    parts = [f'<script type="application/json" id="views-data">{embedded_json(views)}</script>']
    parts += [f"<script>{static(name)}</script>" for name in SCRIPTS]
    parts.append(
        '<script>Fedstein.render(document.getElementById("views"), '
        'JSON.parse(document.getElementById("views-data").textContent));</script>'
    )
    return "\n".join(parts)


def inline_svg(figure: RenderedFigure) -> str:
    """Prepare a drawing for the page: unique ids, the colours of the page, and neither namespaces nor metadata."""
    svg = figure.svg[figure.svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{figure.name}-\1"', svg)
    svg = re.sub(r'(href="|url\()#', rf"\g<1>#{figure.name}-", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    width = re.search(r'width="([\d.]+)pt"', svg)
    limit = f"max-width: {float(width[1]) * 1.6:.0f}px" if width else ""
    label = escape(CAPTIONS[figure.name])
    return re.sub(
        r'width="[\d.]+pt" height="[\d.]+pt"', f'role="img" aria-label="{label}" style="{limit}"', svg, count=1
    )


def _title(summary: Summary) -> str:
    labels = [s.group.label for s in summary.groups]
    if len(labels) == 1:
        return f"Fedstein: {labels[0]}"
    if len(labels) > 4 or sum(map(len, labels)) > 60:
        return f"Fedstein: {len(labels)} settings compared"
    return f"Fedstein: {', '.join(labels[:-1])} and {labels[-1]}"


def _lead(summary: Summary) -> str:
    def shared(key: str) -> str | None:
        values = {show(s.group.config.get(key)) for s in summary.groups}
        return values.pop() if len(values) == 1 and values != {ABSENT} else None

    words = [shared(key) for key in ("data.name", "model.kind", "algorithm.kind", "sites.kind")]
    words += [
        f"{n} {unit}" for key, unit in (("partition.clients", "clients"), ("rounds", "rounds")) if (n := shared(key))
    ]
    seeds = sorted({run.seed for run in summary.runs})
    words.append(f"{_plural(len(summary.runs), 'run')}, {_plural(len(seeds), 'seed')} ({', '.join(map(str, seeds))})")
    return " · ".join(word for word in words if word)


def _notes(summary: Summary) -> list[str]:
    if not summary.notes:
        return []
    return [f'<div class="card note">{"".join(f"<p>{escape(note)}</p>" for note in summary.notes)}</div>']


def _differences(summary: Summary, rows: Sequence[Row]) -> list[str]:
    known = [d for d in summary.differences if d.mean is not None]
    if not any(d.low is not None for d in known):
        return []
    first, metric = summary.groups[0].group.label, summary.metric
    better = "above zero: better" if metric == "accuracy" else "below zero: better"
    columns = difference_columns(rows)
    keys = [key for key, d in zip(_keys(summary)[1:], summary.differences, strict=True) if d.mean is not None]
    columns.append(Column("Seeds in common", [", ".join(map(str, d.seeds)) for d in known]))
    text = f"Tail {in_text(metric)} minus that of {first}, paired by seed ({better} than {first})."
    return [
        f"<h2>Against {escape(first)}</h2>",
        f'<p class="small">{escape(text)}</p>',
        _table(columns, keys),
    ]


def _from_nuts(summary: Summary, rows: Sequence[Row]) -> list[str]:
    columns = distance_columns(rows)
    if not columns:
        return []
    keys = [key for key, s in zip(_keys(summary), summary.groups, strict=True) if s.measured]
    references = [run.reference for run in summary.runs if run.reference]
    text = (
        "The particles against the posterior of the same rows in one place, as NUTS samples it. Mean offsets are in "
        f"posterior standard deviations, sd ratios are particles over posterior. {_diagnostics(summary)}"
    )
    narrow = {(r["particles"]["count"], len(r["particles"]["sd_ratio"]["each"])) for r in references}
    if crowded := sorted({f"N = {n}, d = {d}" for n, d in narrow if n < d}):
        text += (
            f" SVGD with fewer particles than parameters ({'; '.join(crowded)}) loses spread even if "
            "all data is in one place: compare sd ratios with those of pooled SVGD."
        )
    return [
        "<h2>Distance from NUTS</h2>",
        f'<p class="small">{escape(text)}</p>',
        _table(columns, [*keys, *[""] * (len(columns[0].cells) - len(keys))]),
    ]


def _by_client(summary: Summary) -> list[str]:
    shown = [(s.group.label, run) for s in summary.groups for run in s.group.runs if run.evaluation]
    if not shown:
        return []
    text = (
        "The scores of the posterior on each client's held-out rows, which nobody trained on, the worst first. The "
        "clients sent only counts and sums."
    )
    parts = ["<h2>Client by client</h2>", f'<p class="small">{escape(text)}</p>']
    for label, run in shown:
        line = f"{label}, seed {run.seed}: {client_range(run, summary.metric)}"
        table = _table(client_columns(run, summary.metric))
        parts.append(f"<details{' open' if len(shown) == 1 else ''}><summary>{escape(line)}</summary>{table}</details>")
    return parts


def _diagnostics(summary: Summary) -> str:
    """Summarise the diagnostics of the chains: the worst values over all references."""
    checks = [run.reference["nuts"] for run in summary.runs if run.reference]
    worst = {key: max((c[key] for c in checks if c[key] is not None), default=0) for key in ("divergences", "max_rhat")}
    least = min((c["min_ess"] for c in checks if c["min_ess"] is not None), default=0)
    return (
        f"The chains: {worst['divergences'] or 'no'} divergences, split R-hat up to {worst['max_rhat']:.3f}, effective "
        f"sample size at least {least:.0f}."
    )


def _figure(figure: RenderedFigure, several: bool) -> str:
    caption = CAPTIONS[figure.name] + (f" {SEVERAL_SEEDS[figure.name]}" if several else "")
    drawing = f'<div class="drawing">{inline_svg(figure)}</div>'
    return f'<figure class="card">{drawing}<figcaption>{escape(caption)}</figcaption></figure>'


def _configuration(summary: Summary) -> list[str]:
    groups = [s.group for s in summary.groups]
    parts = []
    if summary.differing:
        parts.append('<p class="small">These settings differ between the groups.</p>')
        parts.append(_table(_settings(groups, summary.differing, [g.label for g in groups])))
    same = [key for key in groups[0].config if key not in summary.differing]
    settings = _table(_settings(groups[:1], same, ["Value"]))
    name = "Settings that all groups share" if summary.differing else "All settings"
    parts.append(
        f"<details{'' if summary.differing else ' open'}><summary>{name} ({len(same)})</summary>{settings}</details>"
    )
    return parts


def _settings(groups: Sequence[Group], keys: Sequence[str], headings: Sequence[str]) -> list[Column]:
    columns = [Column("Setting", list(keys), number=False)]
    for group, heading in zip(groups, headings, strict=True):
        columns.append(Column(heading, [show(group.config.get(key)) for key in keys], number=False))
    return columns


def _repeat(rows: Sequence[Row]) -> list[str]:
    folders = [row["folder"] for row in rows if row["level"] == "seed"]
    lines = [f"fedstein run {quote(f'{folder}/config.toml')}" for folder in folders]
    measured = [row["folder"] for row in rows if row["level"] == "seed" and row["nuts_particles"] is not None]
    report = f"fedstein report {' '.join(map(quote, folders))}"
    if measured:
        report = f"fedstein reference {' '.join(map(quote, measured))}\n{report}"
    return [
        '<p class="small">Each run folder holds its configuration with every default spelt out, the seed included; '
        "the versions used are in its <code>environment.json</code>. The same configuration, versions and machine give "
        "the same rounds, apart from the time they take. Run this in the folder that holds the run folders:</p>",
        f"<pre>{escape(chr(10).join(lines))}</pre>",
        '<p class="small">This page, from the run folders:</p>',
        f"<pre>{escape(report)}</pre>",
    ]


def _definitions(summary: Summary) -> str:
    left_out = {"RMSE"} if summary.metric == "accuracy" else {"ECE"}
    if not any(d.low is not None for d in summary.differences):
        left_out.add("95% interval")
    if all(len(s.group.runs) == 1 for s in summary.groups):
        left_out.add("±")
    shown = READING | (FROM_NUTS if any(s.measured for s in summary.groups) else {})
    terms = (f"<dt>{escape(t)}</dt><dd>{escape(d)}</dd>" for t, d in shown.items() if t not in left_out)
    return f'<div class="card"><dl>{"".join(terms)}</dl></div>'


def _keys(summary: Summary) -> list[str]:
    """Draw a short line for each group, in its colour and pattern of the figures."""
    keys = []
    for i in range(len(summary.groups)):
        dashes = style.dashes(i)
        pattern = "" if dashes == "-" else f' stroke-dasharray="{" ".join(f"{2 * n:g}" for n in dashes[1])}"'
        line = f'<line x1="0" y1="5" x2="22" y2="5" stroke="{style.colour(i)}" stroke-width="4"{pattern}/>'
        keys.append(f'<svg class="key" viewBox="0 0 22 10" aria-hidden="true">{line}</svg>')
    return keys


def _table(columns: Sequence[Column], keys: Iterable[str] = ()) -> str:
    """Render a table. `keys` are patches of colour (markup) for the first column."""

    def cell(tag: str, text: str, column: Column, before: str = "") -> str:
        name = "n" if column.number else "wrap" if len(text) > 28 else ""
        return f"<{tag}{f' class={name}' if name else ''}>{before}{escape(text)}</{tag.split()[0]}>"

    head = "".join(cell("th scope=col", column.heading, column) for column in columns)
    lines = list(zip(*(column.cells for column in columns), strict=True))
    patches = list(keys) or [""] * len(lines)
    body = ""
    for line, patch in zip(lines, patches, strict=True):
        cells = zip(line, columns, [patch, *[""] * (len(columns) - 1)], strict=True)
        body += f"<tr>{''.join(cell('td', text, column, before) for text, column, before in cells)}</tr>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="card scroll" tabindex="0" role="region" aria-label="table">{table}</div>'


def _plural(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
