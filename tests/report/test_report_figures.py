"""What the pictures show, and what drawing them leaves alone."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from fedstein import report
from fedstein.evaluation import metrics
from fedstein.report import figures, load_run, style, summarise


@pytest.fixture
def summary(make_run):
    kinds = ("round_robin", "hip")
    return summarise([load_run(make_run(f"{k}{s}", {"selection.kind": k, "seed": s})) for k in kinds for s in range(2)])


def test_curves_are_means_over_seeds_with_the_range_as_band(summary) -> None:
    with style.style():
        accuracy, nll, ece = figures.curves(summary).axes
    group = summary.groups[1].group
    values = np.array([[line["accuracy"] for line in run.rounds] for run in group.runs])
    line = accuracy.lines[1]
    np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 121))
    np.testing.assert_allclose(line.get_ydata(), values.mean(axis=0))
    band = accuracy.collections[1].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(values.min())
    assert band[:, 1].max() == pytest.approx(values.max())
    assert nll.get_yscale() == "log"  # 8 at the start, 0.6 at the end
    assert "log scale" in nll.get_title("left")
    assert accuracy.get_yscale() == "linear"
    assert ece.get_title("left") == "ECE"


def test_curves_join_the_rounds_that_were_evaluated(make_run) -> None:
    runs = [load_run(make_run("a", {"evaluate.every": 50})), load_run(make_run("b", {"evaluate.every": 50, "seed": 1}))]
    line = figures.curves(summarise(runs)).axes[0].lines[0]
    assert list(line.get_xdata()) == [50, 100, 120]
    assert line.get_marker() == "o"


def test_cost_is_cumulative_in_both_directions(summary) -> None:
    ax, gradients, seconds = figures.cost(summary).axes
    assert ax.get_xlabel().startswith("MB sent and received")
    assert ax.get_xscale() == "log"
    np.testing.assert_allclose(ax.lines[0].get_xdata()[[0, -1]], [8960 / 1e6, 120 * 8960 / 1e6])
    assert gradients.get_xlabel() == "Million row-gradients, log scale"
    np.testing.assert_allclose(gradients.lines[1].get_xdata()[-1], 120 * 0.32)
    assert seconds.get_xlabel() == "Seconds in rounds"
    spent = [sum(line["seconds"] for line in run.rounds) for run in summary.groups[0].group.runs]
    np.testing.assert_allclose(seconds.lines[0].get_xdata()[-1], np.mean(spent))


def test_bins_with_few_rows_are_drawn_fainter_and_hollow(make_run) -> None:
    folder = make_run("a", {})
    written = json.loads((folder / "summary.json").read_text())
    full, near_empty = written["reliability"][-1], written["reliability"][-2]
    full["count"], near_empty["count"] = 3000, 7
    near_empty.update(accuracy=1.0, confidence=0.9)
    for other in written["reliability"][:-2]:
        other["count"] = 0
    (folder / "summary.json").write_text(json.dumps(written))
    diagram, strip = figures.reliability(summarise([load_run(folder)])).axes[:2]
    for panel in (diagram, strip):
        faded, solid = (bar.get_alpha() for bar in panel.patches)
        assert faded < 0.5 * solid
    dots = [line for line in diagram.lines if line.get_marker() == "o"]
    assert [float(line.get_xdata()[0]) for line in dots] == pytest.approx([full["confidence"], 0.9])
    assert dots[0].get_markerfacecolor() != dots[1].get_markerfacecolor()


def test_reliability_pools_the_seeds_by_rows(summary) -> None:
    diagram = figures.reliability(summary).axes[0]
    tables = [run.reliability for run in summary.groups[0].group.runs]
    last = [table[-1] for table in tables]
    right = sum(b["count"] * b["accuracy"] for b in last) / sum(b["count"] for b in last)
    assert diagram.lines[1].get_ydata()[-1] == pytest.approx(right)


def test_selection_has_a_bar_for_each_client_and_the_uniform_line(summary) -> None:
    robin, hip = figures.selection(summary).axes
    assert [bar.get_height() for bar in robin.patches] == [4.0] * 30
    assert len(hip.patches) == 30
    assert sum(bar.get_height() for bar in hip.patches) == pytest.approx(120)
    assert hip.lines[0].get_ydata() == [4.0, 4.0]


def test_what_there_is_nothing_to_show_for_is_not_drawn(make_run) -> None:
    regression = load_run(make_run("a", {"model.kind": "bnn_regressor"}))
    assert [p.name for p in figures.draw(summarise([regression]))] == ["curves", "cost", "selection"]
    killed = load_run(make_run("b", stop=3))
    assert [p.name for p in figures.draw(summarise([killed]))] == ["curves", "cost", "selection"]
    never_evaluated = load_run(make_run("c", {"evaluate.every": 50}, stop=3))
    assert [p.name for p in figures.draw(summarise([never_evaluated]))] == ["selection"]


def test_many_groups_look_different() -> None:
    looks = {(style.colour(i), str(style.dashes(i))) for i in range(24)}
    assert len(looks) == 24


def test_the_users_settings_come_back_and_do_not_matter(summary) -> None:
    plain = figures.draw(summary)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9}):
        before = dict(matplotlib.rcParams)
        assert figures.draw(summary) == plain
        assert dict(matplotlib.rcParams) == before


def test_pyplot_is_never_imported() -> None:
    code = "import sys, fedstein.report; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


PACKAGES = [
    (metrics, {"errors", "evaluation", "registry"}),
    (report, {"errors", "evaluation", "federation", "files", "report", "runs"}),
]


@pytest.mark.parametrize(("package", "ours"), PACKAGES)
def test_nothing_but_run_folders_is_known_here(package, ours: set[str]) -> None:
    imported = set()
    for file in Path(package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
    assert {name for name in imported if name.startswith("fedstein.federation")} <= {"fedstein.federation.records"}
    assert {name.split(".")[1] for name in imported if name.startswith("fedstein.")} <= ours
    assert not {name for name in imported if name.split(".")[0] in {"jax", "flwr"}}
