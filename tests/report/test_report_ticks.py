"""The labels of an axis do not run into each other, whatever the numbers, the clients and their names are."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedstein.report import load_run, style, summarise
from fedstein.report.figures import FIGURES
from fedstein.report.view_figures import VIEW_FIGURES
from fedstein.report.views.build import views

LONG = "the-university-hospital-of-{}"
# What stretches axes: few and many clients with and without names, one round, thousands of rounds, rare evaluations.
RUNS: dict[str, dict[str, Any]] = {
    "three clients with long names": {"partition.clients": 3, "names": LONG},
    "thirty clients with long names": {"partition.clients": 30, "names": LONG},
    "many clients": {"partition.clients": 400},
    "one round": {"rounds": 1},
    "many rounds": {"rounds": 3000, "evaluate.every": 100},
    "regression": {"model.kind": "bnn_regressor"},
}


def collisions(fig: Figure) -> list[tuple[str, str]]:
    """Neighbouring tick labels of an axis whose boxes overlap in the drawn figure."""
    FigureCanvasAgg(fig).draw()
    found = []
    for ax in fig.axes:
        for axis in (ax.xaxis, ax.yaxis):
            labels = [tick.label1 for tick in axis.get_major_ticks() if tick.label1.get_visible()]
            low, high = sorted(axis.get_view_interval())
            places = [tick.get_loc() for tick in axis.get_major_ticks() if tick.label1.get_visible()]
            shown = [label for label, at in zip(labels, places, strict=True) if label.get_text() and low <= at <= high]
            boxes = [(label.get_window_extent(), label.get_text()) for label in shown]
            found += [(a, b) for (left, a), (right, b) in pairwise(boxes) if left.shrunk(0.98, 0.9).overlaps(right)]
    return found


def test_labels_that_collide_are_found() -> None:
    fig = style.figure(3.0)
    fig.subplots().set_xticks([0.0, 0.01, 1.0], ["the first", "the second", "the last"])
    assert collisions(fig) == [("the first", "the second")]


@pytest.mark.slow
@pytest.mark.parametrize("case", RUNS)
def test_ticks_do_not_collide(make_run, case: str) -> None:
    changes = dict(RUNS[case])
    names = changes.pop("names", None)
    folders = []
    for kind in ("ksd", "hip"):
        folders.append(make_run(kind, {**changes, "selection.kind": kind}))
        if names:
            entries = [{"id": k, "name": names.format(k), "rows": 9} for k in range(changes["partition.clients"])]
            (folders[-1] / "clients.json").write_text(json.dumps(entries))
    summary = summarise([load_run(folder) for folder in folders])
    run = views(folders[:1], posterior=False)["runs"][0]
    drawn = 0
    with style.style(style.ON_PAPER):
        for makers, source in ((FIGURES, summary), (VIEW_FIGURES, run)):
            for name, make in makers.items():
                fig = make(source)
                if fig is not None:
                    drawn += 1
                    assert collisions(fig) == [], name
    assert drawn >= 3
