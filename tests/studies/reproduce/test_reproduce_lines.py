"""Lines of runs that add up over sessions, and the pages that are made from them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fedstein.cli import reproduce
from fedstein.errors import InputError
from fedstein.evaluation.metrics import no_values
from fedstein.federation.records import RoundRecord
from fedstein.report.budget_figure import BUDGETS, draw_budgets
from fedstein.report.load import Run
from fedstein.studies.reproduce import write
from fedstein.studies.reproduce.dependence import dependence_page, figure_panels
from fedstein.studies.reproduce.plan import COMBINED, PAPERS, Job
from fedstein.studies.reproduce.run_lines import (
    RunKey,
    add_lines,
    conditions_in,
    key_of,
    measure_runs,
    merge_lines,
    read_lines,
    values_by_seed,
    without,
    write_lines,
)

COMMITTED = Path(__file__).parents[3] / "experiments" / "orders" / "runs.csv"


def run_of(seed: int, accuracies: list[float], trained: int = 1) -> Run:
    lines = [
        RoundRecord(r, list(range(trained)), 10, 0, 0.1, metrics={**no_values(), "accuracy": a})
        for r, a in enumerate(accuracies, start=1)
    ]
    return Run(Path("x"), {"seed": seed, "partition": {"clients": 4}}, lines, None, None)


def test_runs_are_measured_and_their_lines_survive_the_file(tmp_path):
    hip = Job("bnn27", "hip", "log", 0, 8, False, 1, "blocks")
    parallel = Job("bnn27", "parallel", "log", 0, 8, False, 1, "blocks")
    rising = [0.1 * r for r in range(1, 9)]
    lines = measure_runs({hip: run_of(0, rising), parallel: run_of(0, [0.5] * 8, trained=4)})
    assert lines[key_of(hip)]["late"] == pytest.approx(0.75)
    assert lines[key_of(hip)]["early"] == pytest.approx(0.15)
    assert lines[key_of(hip)]["unrest"] == pytest.approx(np.std([0.7, 0.8], ddof=1))
    assert lines[key_of(hip)]["late_trainings"] == pytest.approx(0.75)
    assert lines[key_of(parallel)]["late_trainings"] == pytest.approx(0.5)
    alone = measure_runs({hip: run_of(0, rising)})
    assert "late_trainings" not in alone[key_of(hip)], "an equal budget needs the other run"
    write_lines(lines, tmp_path / "runs.csv")
    back = read_lines(tmp_path / "runs.csv")
    assert back == {key: pytest.approx(values, abs=1e-6) for key, values in lines.items()}
    assert without([hip, Job("bnn27", "ksd", "log", 0, 8, False, 1, "blocks")], back)[0].variant == "ksd"


def test_what_a_run_has_spent_after_each_round_and_the_figure_of_it():
    parallel = run_of(0, [0.5] * 8, trained=4)
    spent = {label: of(parallel) for label, of in BUDGETS.items()}
    assert spent["Rounds"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert spent["Trainings of clients"] == [4, 8, 12, 16, 20, 24, 28, 32]
    assert spent["GB, down and up"] == pytest.approx([1e-8 * r for r in range(1, 9)])
    drawn = draw_budgets([("HIP", [run_of(s, [0.1 * r for r in range(1, 9)]) for s in (0, 1)]), ("P", [parallel])])
    assert all(len(content) > 3000 for content in drawn.values())


def test_new_lines_come_to_the_known_ones(tmp_path):
    key = RunKey("blocks", "log", "bnn27", "hip", 0, 100)
    other = key._replace(seed=1)
    merged = merge_lines({key: {"late": 0.7, "late_bytes": 0.6}}, {key: {"late": 0.8}, other: {"late": 0.5}})
    assert merged == {key: {"late": 0.8, "late_bytes": 0.6}, other: {"late": 0.5}}
    asked = {"order": "blocks", "density": "log", "setting": "bnn27", "scheme": "hip", "measure": "late"}
    assert values_by_seed(merged, **asked) == {0: 0.8, 1: 0.5}
    add_lines({key: {"late": 0.7}}, tmp_path / "runs.csv")
    add_lines({other: {"late": 0.5}}, tmp_path / "runs.csv")
    assert read_lines(tmp_path / "runs.csv") == {key: {"late": 0.7}, other: {"late": 0.5}}, "nothing is lost"
    short = {**merged, key._replace(rounds=10): {"late": 0.1}}
    assert values_by_seed(short, **asked) == {0: 0.8, 1: 0.5}, "the longest runs count"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a,b\n1,2\n", "no column 'order'"),
        ("order,density,setting,scheme,seed,late\nblocks,log,blr99,hip,0,0.5\n", "line 2: no setting 'blr99'"),
        ("order,density,setting,scheme,seed,late\nblocks,log,blr30,hip,0,nan\n", "line 2: a value is not finite"),
        ("order,density,setting,scheme,seed,late\nblocks,log,blr30,hip,zero,.5\n", "line 2: invalid literal"),
        ("order,density,setting,scheme,seed,late\n" + "blocks,log,blr30,hip,0,.5\n" * 2, "line 3: this run has a line"),
    ],
)
def test_a_file_that_is_no_file_of_lines_is_refused(text, hint, tmp_path):
    (tmp_path / "runs.csv").write_text(text)
    with pytest.raises(InputError, match=hint):
        read_lines(tmp_path / "runs.csv")
    with pytest.raises(InputError, match="cannot read"):
        read_lines(tmp_path / "none.csv")


def ask(what: str, tmp_path: Path, **changes) -> None:
    given = {"known": COMMITTED, "data": "embedded", "until_decided": False, "looks": 1, "order": None, **changes}
    reproduce.reproduce_figures(
        what, 10, None, given.pop("data"), "reference", ["blr30"], 1, tmp_path / "out", False, True, **given
    )


def test_what_has_a_line_is_not_run_again_and_counts(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(reproduce, "run_jobs", lambda jobs, *rest: asked.append(jobs) or {})
    ask("fig2", tmp_path)
    assert asked == [[]], "every run of the paper's order has a committed line"
    assert "KSD" not in (tmp_path / "out" / "claims.md").read_text().split("| fig2")[1]
    assert len(read_lines(tmp_path / "out" / "runs.csv")) >= 208
    assert not list((tmp_path / "out").glob("fig*.png")), "a line has no curve"


@pytest.mark.parametrize(
    ("what", "changes", "hint"),
    [
        ("pages", {"known": None}, "--known experiments"),
        ("theory", {}, "--known is for figures"),
        ("fig1", {"data": "full"}, "--known is for figures"),
        ("fig1", {"until_decided": True}, "looks at its own seeds"),
        ("sites", {"looks": 2}, "--looks is for the claims"),
    ],
)
def test_options_that_would_be_ignored_are_refused(what, changes, hint, tmp_path):
    with pytest.raises(InputError, match=hint):
        ask(what, tmp_path, **changes)


def test_pages_are_made_from_the_committed_lines_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(write, "draw_dependence", lambda panels: {"png": b"drawn"})
    out = tmp_path / "out"
    committed = {name: (COMMITTED.parent / name).read_text() for name in ("sentences.md", "dependence.md")}
    command = committed["sentences.md"].splitlines()[2]
    looks = re.search(r"--looks (\d+)", command)
    ask("pages", tmp_path, looks=int(looks[1]) if looks else 1)
    for name, text in committed.items():
        assert (out / name).read_text() == text, f"{name} is what its lines say"
    assert (out / "dependence.png").read_bytes() == b"drawn"
    assert ("blocks", "reference") in conditions_in(read_lines(COMMITTED), ["blocks"])


def test_the_page_names_a_scheme_that_has_both_and_says_where_none_has():
    rng = np.random.default_rng(0)
    lines = {}
    for setting in ("blr30", "blr120"):
        for order in ("blocks", "dealt", "shuffled"):
            for scheme in (*PAPERS, *COMBINED):
                early = 0.7 if scheme in ("curvature_hip", "curvature_hip_pass") else 0.6
                late = 0.8 if scheme in ("curvature", "curvature_hip_pass") else 0.75
                for seed in range(5):
                    values = {"early": early, "late": late, "unrest": 0.01}
                    noisy = {name: value + 1e-3 * rng.normal() for name, value in values.items()}
                    lines[RunKey(order, "", setting, scheme, seed, 150)] = noisy
    page = dependence_page(lines, "")
    assert "in every setting and order: Curvature, HIP in passes." in page
    assert len(figure_panels(lines)) == 2
    for key in list(lines):
        if key.order == "shuffled" and key.scheme == "curvature_hip_pass":
            lines[key] = {"early": 0.6, "late": 0.75, "unrest": 0.01}
    assert "No scheme is shown" in dependence_page(lines, "")
