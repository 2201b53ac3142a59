"""Writing the files of a report from run folders. Each file is replaced atomically."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedstein.errors import InputError
from fedstein.files import write_bytes
from fedstein.report.figures import FIGURES, draw
from fedstein.report.find import find_runs
from fedstein.report.html import render
from fedstein.report.load import Run, load_run
from fedstein.report.summary import Summary, group_row, seed_row, summarise
from fedstein.report.tables import Row


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
    """Read run folders, and write report.html, report.csv and figures/.

    Args:
        paths: The run folders, or folders with runs below them. A folder that is given twice counts once.
        out: The folder to write to; by default FOLDER/report for one folder and ./report for several.
        notes: What else is to be said of these runs; it comes before the report's own notes.

    Returns:
        The files and the numbers of the report.

    Raises:
        InputError: If a folder holds no run, or ``out`` is not writable.
    """
    given = list({Path(path).resolve(): Path(path) for path in paths}.values())
    if not given:
        raise InputError("expected at least one run folder, got none; name the folders to report on")
    found = find_runs(given)
    runs = [load_run(path) for path in found.runs]
    summary = summarise(runs)
    said = dict.fromkeys((*notes, *found.notes))
    summary = replace(summary, notes=(*said, *summary.notes))
    rows = report_rows(summary)
    default = given[0] / "report" if len(given) == 1 else Path("report")
    folder = default if out is None else Path(out)
    figures = draw(summary)
    page = render(summary, rows, figures)
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"expected a folder to write to, got {folder} ({error.strerror}); name another one") from error
    written = []
    for figure in figures:
        for ending, content in ((".png", figure.png), (".svg", figure.svg.encode())):
            written.append(_write(folder / "figures" / f"{figure.name}{ending}", content))
    for stale in FIGURES.keys() - {figure.name for figure in figures}:
        for ending in (".png", ".svg"):
            (folder / "figures" / f"{stale}{ending}").unlink(missing_ok=True)
    return ReportResult(
        html=_write(folder / "report.html", page.encode()),
        csv=_write(folder / "report.csv", _csv(rows).encode()),
        figures=tuple(written),
        rows=rows,
        notes=summary.notes,
        summary=summary,
    )


def report_rows(summary: Summary) -> list[Row]:
    """Build a row for each group, followed by one for each of its runs.

    Args:
        summary: The numbers of the report.
    """
    names = _folder_names(summary.runs)
    differences = {d.label: d for d in summary.differences}
    rows = []
    for summed in summary.groups:
        group = summed.group
        rows.append(group_row(summed, differences.get(group.label)))
        rows += [seed_row(group, run, names[run.path], summary.named) for run in group.runs]
    return rows


def _folder_names(runs: Sequence[Run]) -> dict[Path, str]:
    """Name each folder relative to the common parent, so that the page tells nothing about the machine."""
    full = {run.path: run.path.resolve() for run in runs}
    common = os.path.commonpath([path.parent for path in full.values()])
    return {path: Path(os.path.relpath(whole, common)).as_posix() for path, whole in full.items()}


def _csv(rows: Sequence[Row]) -> str:
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _write(file: Path, content: bytes) -> Path:
    write_bytes(file, content)
    return file
