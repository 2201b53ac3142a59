"""Writing the files of a report from run folders. Each file is replaced atomically."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedstein.errors import InputError
from fedstein.files import write_bytes
from fedstein.report.figures import FIGURES, RenderedFigure, draw, draw_run
from fedstein.report.find import find_runs
from fedstein.report.html import CAPTIONS, SEVERAL_SEEDS, render
from fedstein.report.load import Run, load_run
from fedstein.report.methods import caption, methods
from fedstein.report.summary import Summary, group_row, seed_row, summarise
from fedstein.report.tables import Row
from fedstein.report.view_captions import view_caption
from fedstein.report.view_figures import VIEW_FIGURES
from fedstein.report.views.build import folder_names, views

SHOWN = 5  # damaged places of a run that are listed


@dataclass(frozen=True)
class ReportResult:
    """The files of the report, and its numbers: `rows` for `table`, and `notes` to print below it."""

    html: Path
    csv: Path
    figures: tuple[Path, ...]
    rows: list[Row]
    notes: tuple[str, ...]
    summary: Summary


def write_report(paths: Sequence[str | Path], out: str | Path | None = None, notes: Sequence[str] = ()) -> ReportResult:
    """Read run folders, and write report.html, report.csv, methods.md, references.bib and figures/.

    Args:
        paths: The run folders, or folders with runs below them. A folder that is given twice counts once.
        out: The folder to write to; by default FOLDER/report for one folder and ./report for several.
        notes: Further notes on these runs; they come before the report's own notes.

    Returns:
        The files and the numbers of the report.

    Raises:
        InputError: If no run can be read, or ``out`` is not writable. Of damaged runs the report shows what can be
            read, and its notes say what cannot.
    """
    given = list({Path(path).resolve(): Path(path) for path in paths}.values())
    if not given:
        raise InputError("expected at least one run folder, got none; name the folders to report on")
    found = find_runs(given)
    runs, damage = _load_all(found.runs)
    summary = summarise(runs)
    said = dict.fromkeys((*notes, *found.notes, *damage))
    summary = replace(summary, notes=(*said, *summary.notes))
    rows = report_rows(summary)
    default = given[0] / "report" if len(given) == 1 else Path("report")
    folder = default if out is None else Path(out)
    figures = draw(summary)
    paragraph, bibtex = methods(summary)
    shown = views([run.path for run in summary.runs])
    page = render(summary, rows, figures, shown, paragraph, bibtex)
    captions = _captions(summary, figures)
    first = shown["runs"][0]
    single = draw_run(first)
    figures += single
    captions += "".join(f"\n**{f.name}**: {_of_run(f.name, first, summary)}\n" for f in single)
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"expected a folder to write to, got {folder} ({error.strerror}); name another one") from error
    written = []
    for figure in figures:
        for ending, content in ((".png", figure.png), (".svg", figure.svg.encode()), (".pdf", figure.pdf)):
            written.append(_write(folder / "figures" / f"{figure.name}{ending}", content))
    for stale in (FIGURES.keys() | VIEW_FIGURES.keys()) - {figure.name for figure in figures}:
        for ending in (".png", ".svg", ".pdf"):
            (folder / "figures" / f"{stale}{ending}").unlink(missing_ok=True)
    _write(folder / "figures" / "captions.md", captions.encode())
    _write(folder / "methods.md", f"{paragraph}\n".encode())
    _write(folder / "references.bib", bibtex.encode())
    return ReportResult(
        html=_write(folder / "report.html", page.encode()),
        csv=_write(folder / "report.csv", _csv(rows).encode()),
        figures=tuple(written),
        rows=rows,
        notes=summary.notes,
        summary=summary,
    )


def _load_all(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Read the runs of a report: all that can be read, and notes on what cannot.

    Args:
        paths: The run folders.

    Returns:
        The runs and the notes.

    Raises:
        InputError: No round of any run can be read.
    """
    runs: list[Run] = []
    notes: list[str] = []
    refused: InputError | None = None
    for path in paths:
        problems: list[str] = []
        try:
            runs.append(load_run(path, problems))
        except InputError as error:
            refused = refused or error
            problems.append(str(error))
        left_out = "so the run is left out" if not runs or runs[-1].path != path else "the report shows the rest"
        notes += [f"{path} is damaged: {text}; {left_out}." for text in problems[:SHOWN]]
        if len(problems) > SHOWN:
            notes.append(f"{path} is damaged in {len(problems) - SHOWN} more places.")
    if refused is not None and not runs:
        raise refused
    return runs, notes


def report_rows(summary: Summary) -> list[Row]:
    """Build a row for each group, followed by one for each of its runs.

    Args:
        summary: The numbers of the report.
    """
    names = folder_names([run.path for run in summary.runs])
    differences = {d.label: d for d in summary.differences}
    rows = []
    for summed in summary.groups:
        group = summed.group
        rows.append(group_row(summed, differences.get(group.label)))
        rows += [seed_row(group, run, names[run.path], summary.named) for run in group.runs]
    return rows


def _captions(summary: Summary, figures: Sequence[RenderedFigure]) -> str:
    several = any(len(s.group.runs) > 1 for s in summary.groups)
    lines = []
    for figure in figures:
        interval = SEVERAL_SEEDS.get(figure.name, "") if several else ""
        shown = [run for run in summary.runs if run.reference] if figure.name == "distances" else summary.runs
        lines.append(f"**{figure.name}**: {caption(CAPTIONS[figure.name], shown, interval)}\n")
    return "\n".join(lines)


def _of_run(name: str, shown: dict[str, Any], summary: Summary) -> str:
    """The caption of a figure of a single run, the first one of the report."""
    of = f"Run {shown['id']}." if len(summary.runs) > 1 else ""
    return caption(view_caption(name, shown), summary.runs[:1], of)


def _csv(rows: Sequence[Row]) -> str:
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _write(file: Path, content: bytes) -> Path:
    write_bytes(file, content)
    return file
