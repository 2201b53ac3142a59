"""The views that need the posterior and, some of them, the data: they take seconds and are computed once a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedstein import __version__
from fedstein.errors import FedsteinError
from fedstein.report.follow import FollowedRun
from fedstein.report.views.forest import forest
from fedstein.report.views.particles import particles
from fedstein.report.views.rows import client_rows_view, uncertain_rows

NOT_FINISHED = "This needs the posterior, which is written with summary.json after the last round."
OLDER = "This run folder is of an older version of Fedstein ({made}), whose posterior this version does not open: "
DETAILS: dict[str, Callable[[FollowedRun], dict[str, Any]]] = {
    "forest": forest,
    "particles": particles,
    "rows": uncertain_rows,
    "clients": client_rows_view,
}


def details(run: FollowedRun) -> dict[str, Any]:
    """The views of a run's posterior: coefficients, particles, uncertain rows, and scores by client.

    Args:
        run: The run.

    Returns:
        A view by name; one that cannot be shown has the key "missing", with the reason.
    """
    found = {}
    for name, view in DETAILS.items():
        if name != "particles" and run.summary is None:
            found[name] = {"missing": NOT_FINISHED}
            continue
        try:
            found[name] = view(run)
        except FedsteinError as error:
            found[name] = {"missing": _older(run) + _without_paths(run, str(error))}
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            # A folder of another version or a damaged file must not take the other views with it.
            text = f"This cannot be shown: the run folder is damaged or of another version ({error})."
            found[name] = {"missing": _older(run) + _without_paths(run, text)}
    return found


def _older(run: FollowedRun) -> str:
    """A few words if the run was made by another minor version than this one; empty otherwise."""
    packages = (run.files["environment.json"].value or {}).get("packages")
    made = str(packages.get("fedstein", "")) if isinstance(packages, dict) else ""
    return OLDER.format(made=made) if made and made.split(".")[:2] != __version__.split(".")[:2] else ""


def _without_paths(run: FollowedRun, text: str) -> str:
    """A message that tells nothing about the machine, as a report may be passed on."""
    for path in (run.path.resolve(), run.path):
        text = text.replace(str(path), run.id)
    return text
