"""Figures of single runs for a paper, their captions, and the paragraph on methods with its references."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report.test_views import with_law

import fedstein.inference.methods as methods_package
import fedstein.selection as selection_package
from fedstein.inference.methods import METHODS
from fedstein.models import MODELS
from fedstein.report import load_run, summarise, view_figures
from fedstein.report.citations import ALGORITHMS, DATASETS, SCHEMES
from fedstein.report.citations import MODELS as MODEL_WORDS
from fedstein.report.methods import bibliography, methods
from fedstein.report.view_captions import view_caption
from fedstein.report.views.build import views
from fedstein.report.views.rows import _picture
from fedstein.selection import SCHEMES as REGISTERED

ALL_KEYS = [key for table in (ALGORITHMS, SCHEMES, DATASETS) for entry in table.values() for key in entry.keys]


def test_paper_figures_of_a_run_show_its_views(make_run) -> None:
    run = views(with_law(make_run("a", {"rounds": 50}, stop=50)), posterior=False)["runs"][0]
    drawn = view_figures.probabilities(run)
    image = drawn.axes[0].images[0].get_array()
    np.testing.assert_allclose(np.asarray(image), run["heat_map"]["probability"])
    assert len(drawn.axes[0].lines[0].get_xdata()) == 50  # one pick in each round
    assert view_figures.forest(run) is None
    series = [
        {"label": "federated", "mean": [1.0, 2.0], "low": [0.5, 1.0], "high": [1.5, 3.0]},
        {"label": "pooled", "mean": [1.1, 2.1], "low": [0.6, 1.1], "high": [1.6, 3.1]},
    ]
    run["details"] = {"forest": {"names": ["age", "dose"], "series": series, "units": "raw"}}
    ax = view_figures.forest(run).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["age", "dose"]
    assert ax.collections[1].get_segments()[1][:, 0].tolist() == [1.1, 3.1]


def detailed() -> dict[str, Any]:
    """The views of a posterior as they come from a run: particles, rows and scores."""
    row = {"row": 4, "epistemic": 0.3, "total": 0.6, "truth": "8", "predicted": [["8", 0.5], ["3", 0.4]]}
    rows = {"rows": [row], "task": "classification", "scanned": 1000, "median": 0.01, "particles": 2}
    frames = [[1, [[0.0, 0.0], [1.0, 1.0]]], [9, [[2.0, 0.5], [3.0, 0.25]]]]
    track = {"rounds": [1, 9], "spread": [0.5, 0.25], "frames": frames, "share": 0.88, "exact": True, "count": 2}
    scores = {"clients": ["b", "a"], "score": [0.6, 0.9], "ece": [0.1, None], "metric": "accuracy", "where": "on rows"}
    return {"rows": rows, "particles": track, "clients": scores, "forest": {"missing": "none"}}


def test_paper_figures_of_particles_rows_reports_and_scores(make_run) -> None:
    run = views(with_law(make_run("a", {"rounds": 8}, stop=8)), posterior=False)["runs"][0]
    run["details"] = detailed()
    spread, cloud = view_figures.particles(run).axes
    assert spread.lines[0].get_ydata().tolist() == [0.5, 0.25]
    assert cloud.lines[1].get_xydata().tolist() == [[2.0, 0.5], [3.0, 0.25]]
    bars = view_figures.rows(run).axes[0].patches
    assert [bar.get_width() for bar in bars] == pytest.approx([0.3, 0.3])  # epistemic, and the rest of the entropy
    drawn = view_figures.reports(run).axes[0]
    assert drawn.lines[0].get_xdata().tolist() == pytest.approx(run["reports"]["median"])
    score, calibration = view_figures.scores(run).axes
    assert (len(score.lines[0].get_xdata()), len(calibration.lines[0].get_xdata())) == (2, 1)
    assert view_figures.incidents(run) is None
    run["incidents"] = {"marks": [[3, 0, "a"]], "kinds": ["missing"], "rounds": 8}
    assert view_figures.incidents(run).axes[0].lines[0].get_xdata().tolist() == [3]
    for name in ("particles", "rows", "reports", "scores"):
        said = view_caption(name, run)
        assert said.endswith(".")
    assert "88% of the variance" in view_caption("particles", run)
    assert "central 80% over the last 2 rounds" in view_caption("reports", run)


def test_paper_figure_of_rows_shows_pictures(make_run) -> None:
    values = np.arange(4.0)
    row = {"row": 1, "truth": "0", "predicted": [["0", 0.5], ["1", 0.25]], "epistemic": 0.1, "total": 0.2}
    row["picture"] = _picture(values, (2, 2))
    view = {"rows": [row], "task": "classification"}
    ax = view_figures.rows({"details": {"rows": view}}).axes[0]
    np.testing.assert_allclose(np.asarray(ax.images[0].get_array()), (values / 3).reshape(2, 2), atol=1 / 255)
    assert ax.get_title() == "label 0\n0: 50%, 1: 25%"


def test_every_built_in_method_and_scheme_has_words_and_references() -> None:
    known = set(re.findall(r"@\w+\{(\w+),", bibliography(ALL_KEYS)))
    for words, parts, place in ((ALGORITHMS, METHODS, methods_package), (SCHEMES, REGISTERED, selection_package)):
        files = {file.stem for file in Path(place.__file__).parent.glob("*.py")}
        assert set(words) == files & set(parts)  # one file each; other tests may have registered parts of their own
    assert set(MODEL_WORDS) <= set(MODELS)
    assert set(ALL_KEYS) <= known


def test_the_paragraph_on_methods_cites_what_was_used(make_run) -> None:
    folders = [make_run("a"), make_run("b", {"selection.kind": "round_robin"})]
    paragraph, bibtex = methods(summarise([load_run(folder) for folder in folders]))
    assert "30 clients" in paragraph
    assert "one seed (0)" in paragraph
    cited = set(re.findall(r"\w+\d{4}\w+", paragraph))
    assert cited == set(re.findall(r"@\w+\{(\w+),", bibtex))
    assert {"blackard1999comparative", "yang2022client", "kassab2022federated", "liu2016kernelized"} <= cited
    assert "hoffman2014nuts" not in cited  # nobody ran fedstein reference
