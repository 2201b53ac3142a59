"""The dictionary of all views of some runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedstein.errors import InputError
from fedstein.report.follow import FollowedRun
from fedstein.report.views.calibration import clients_evaluated, reliability
from fedstein.report.views.curves import group_curves, headline, shown_metrics, sparkline
from fedstein.report.views.details import DETAILS, details
from fedstein.report.views.grouping import group_followed
from fedstein.report.views.nodes import nodes
from fedstein.report.views.selection import heat_map, incidents, reports, shares

VERSION = 1
DETAILED = 6  # runs of a report whose posteriors are shown: each takes seconds
TOO_MANY = (
    f"Among many runs, this is shown for {DETAILED}, the first of each group before others; fedstein ui, or a report "
    "of this run alone, shows it."
)
HEADLINE = ("accuracy", "rmse", "nll", "ece")


def views(folders: str | Path | Sequence[str | Path], posterior: bool = True) -> dict[str, Any]:
    """Return everything that the page and the report show about some run folders.

    Args:
        folders: One run folder or several. They may be unfinished, older or damaged; the dictionary says what is
            missing. Runs that differ only in the seed are shown together.
        posterior: Whether to add the views that need the posterior and the data, which takes seconds; for at most six
            runs, the first of each group before others.

    Returns:
        A dictionary for ``json.dumps``. Its size depends on the number of runs and clients, not on that of rounds.

    Raises:
        InputError: A folder does not exist.
    """
    paths = [Path(folders)] if isinstance(folders, (str, Path)) else [Path(folder) for folder in folders]
    for path in paths:
        if not path.is_dir():
            raise InputError(f"expected a run folder, got {path}, which is not a folder; check the path")
    runs = [FollowedRun(path, name) for path, name in folder_names(paths).items()]
    found = views_of(runs)
    if posterior:
        first = [group["runs"][0] for group in found["groups"]]
        order = sorted(range(len(runs)), key=lambda i: runs[i].id not in first)  # sorted() is stable
        for place, i in enumerate(order):
            left_out = {name: {"missing": TOO_MANY} for name in DETAILS}
            found["runs"][i]["details"] = details(runs[i]) if place < DETAILED else left_out
    return found


def folder_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Name each folder relative to the common parent, so that a page tells nothing about the machine."""
    full = {path: path.resolve() for path in paths}
    common = os.path.commonpath([path.parent for path in full.values()]) if full else ""
    return {path: Path(os.path.relpath(whole, common)).as_posix() for path, whole in full.items()}


def views_of(runs: Sequence[FollowedRun]) -> dict[str, Any]:
    """The views of runs that were read, without those of the posterior.

    Args:
        runs: The runs, the group to compare with first.
    """
    groups, notes = group_followed(runs)
    metrics = shown_metrics(list(runs))
    label = {run.id: group.label for group in groups for run in group.runs}
    return {
        "version": VERSION,
        "metrics": metrics,
        "scored": scored_on(runs),
        "notes": notes,
        "groups": [
            {
                "label": group.label,
                "seeds": [run.seed if run.config else None for run in group.runs],
                "runs": [run.id for run in group.runs],
                "headline": headline(group, [m for m in HEADLINE if m in metrics]),
                "curves": group_curves(group, metrics),
                "reliability": reliability(group),
                "shares": shares(group),
            }
            for group in groups
        ],
        "runs": [_run(run, label.get(run.id, run.id)) for run in runs],
    }


def scored_on(runs: Sequence[FollowedRun]) -> str:
    """Describe the rows on which the rounds were evaluated; empty if no run says so."""
    places = {str(run.section("evaluate").get("where", "server")) for run in runs if run.config}
    words = {"server": "test rows", "clients": "the rows that clients hold out"}
    found = ", or on ".join(words[place] for place in sorted(places, reverse=True) if place in words)
    fitted = any(run.section("evaluate").get("temperature") == "fit" for run in runs)
    return f"{found}, before the calibration temperature is applied" if found and fitted else found


def _run(run: FollowedRun, label: str) -> dict[str, Any]:
    metrics = shown_metrics([run])
    return {
        **describe(run),
        "label": label,
        "heat_map": heat_map(run),
        "reports": reports(run),
        "clients": clients_evaluated(run, metrics[0]) if metrics[:1] in (["accuracy"], ["rmse"]) else None,
        "incidents": incidents(run),
        "nodes": nodes(run),
    }


def describe(run: FollowedRun) -> dict[str, Any]:
    """Return the entry of a run in the list of runs."""
    words = [run.section("data").get("name"), run.section("model").get("kind"), run.section("selection").get("kind")]
    engine = run.section("engine").get("kind")
    return {
        "id": run.id,
        "seed": run.seed if run.config else None,
        "state": run.state,
        "round": run.table.last_round if len(run.table) else 0,
        "rounds": run.planned,
        "about": " · ".join(str(word) for word in words if word),
        "engine": engine,
        "problems": [*run.problems, *run.remarks],
        "spark": sparkline(run),
        "happened": [run.happened, run.asked.get("kind"), run.asked.get("clients"), run.asked.get("since")],
    }


def run_list(runs: Sequence[FollowedRun]) -> list[dict[str, Any]]:
    """The entries of the list of runs."""
    return [describe(run) for run in runs]
