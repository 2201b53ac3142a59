"""The paper's figures in miniature: which runs they need, that they run once, what the page says."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from forked import fedstein
from scipy.stats import ttest_rel

from fedstein.errors import FedsteinError, InputError
from fedstein.federation.records import RoundRecord
from fedstein.report.load import Run
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts
from fedstein.runs.parallel_jobs import run_jobs
from fedstein.studies.reproduce import (
    CLAIMS,
    FIGURES,
    SETTINGS,
    Condition,
    judge,
    make_plan,
    write_conditions,
)
from fedstein.studies.reproduce.plan import Job, Plan


def plan(*figures: str, **changes) -> Plan:
    return make_plan(
        figures, **{"seeds": None, "rounds": None, "density": "reference", "full": False, "quick": False, **changes}
    )


def test_the_settings_are_the_papers():
    seen = {}
    for job in plan(*FIGURES).jobs:
        blr = job.setting.startswith("blr")
        config, notes = resolve(job.config(1), Facts("classification", 2 if blr else 9))
        assert notes == []
        assert (config.algorithm.local_steps, config.algorithm.distill_steps, config.algorithm.temperature) == (
            10,
            10,
            1,
        )
        if blr:
            assert (config.partition.kind, config.partition.ratio) == ("label_ratio", 0.9)
        else:
            assert (config.partition.classes, config.model.hidden) == (3, [100])
        seen.setdefault(job.setting, set()).add(config.partition.clients)
    assert seen == {"blr30": {30}, "blr120": {120}, "bnn27": {27}, "bnn120": {120}}


def test_runs_that_figures_share_are_one_job():
    alone = sum(len(plan(figure, seeds=2).jobs) for figure in FIGURES)
    together = plan(*FIGURES, seeds=2).jobs
    assert len(together) == len(set(together)) < alone
    assert {(job.variant, job.density) for job in together if job.setting == "bnn27"} == {
        ("ksd", "reference"),
        ("hip", "reference"),
        ("round_robin", "reference"),
        ("random", "reference"),
        ("hip", "log"),
        ("parallel", "log"),
    }


def test_every_claim_belongs_to_curves_that_a_figure_draws():
    for claim in CLAIMS:
        figure = FIGURES[claim.figure]
        assert claim.setting in figure.panels
        assert {claim.first, claim.second} <= set(figure.variants)
    assert {(c.figure, c.setting) for c in CLAIMS} == {(n, p) for n, f in FIGURES.items() for p in f.panels}


def fake(seed: int, late: float, unrest: float, early: float) -> Run:
    costs = {"selected": [], "bytes_down": 0, "bytes_up": 0, "seconds": 0.1}
    lines = [{"round": r, "accuracy": early if r <= 2 else late, **costs} for r in range(1, 9)]
    rounds = [RoundRecord.from_dict(line) for line in lines]
    tail = {"accuracy": {"mean": late, "sd": unrest}}
    return Run(Path("x"), {"seed": seed}, rounds, {"final": {}, "tail": tail, "selected_counts": [], "rounds": 8}, None)


@pytest.mark.parametrize(
    ("gaps", "word"),
    [([0.02, 0.03, 0.025], "holds"), ([-0.02, -0.03, -0.025], "does not hold"), ([0.1, -0.1, 0.01], "undecided")],
)
def test_verdicts_follow_the_paired_interval(gaps, word):
    claim = next(c for c in CLAIMS if c.measure == "late")
    ours = [fake(seed, 0.7 + gap, 0.01, 0.5) for seed, gap in enumerate(gaps)]
    theirs = [fake(seed, 0.7, 0.01, 0.5) for seed in range(3)]
    verdict = judge(claim, ours, theirs)
    interval = ttest_rel([0.7 + g for g in gaps], [0.7] * 3).confidence_interval(0.95)
    assert (verdict.low, verdict.high) == pytest.approx((interval.low, interval.high))
    assert verdict.word == word
    steadier = next(c for c in CLAIMS if c.measure == "unrest")
    calm, wild = ([fake(s, 0.7, sd + s / 1e4, 0.5) for s in range(3)] for sd in (0.01, 0.05))
    assert judge(steadier, calm, wild).effect == pytest.approx(0.04), "less unrest counts in favour"
    assert judge(claim, ours[:1], theirs).word == "undecided", "one seed decides nothing"


@pytest.fixture(scope="module")
def miniature(tmp_path_factory):
    """All of figure 4's machinery and the BLR panels of the others at the least possible size."""
    whole = plan(*FIGURES, seeds=2, rounds=2)
    small = {key: jobs for key, jobs in whole.curves.items() if key[1] == "blr30"}
    out = tmp_path_factory.mktemp("reproduction")
    only = Plan(("fig1", "fig2", "fig3"), small)
    return only, out, run_jobs(only.jobs, out / "runs", 2, lambda share, doing: None)


def shrink(monkeypatch, only: Plan) -> None:
    for name in only.figures:
        monkeypatch.setitem(FIGURES, name, FIGURES[name]._replace(panels=("blr30",)))


@pytest.mark.slow
def test_a_miniature_gives_figures_numbers_and_claims(miniature, monkeypatch):
    only, out, folders = miniature
    shrink(monkeypatch, only)
    assert len(folders) == 8, "four schemes, two seeds"
    dealt = {Condition("dealt", "reference"): only}
    verdicts = write_conditions(dealt, folders, out, "fedstein reproduce all")
    assert {v.claim.setting for v in verdicts} == {"blr30"}
    for name in only.figures:
        for ending in ("png", "svg", "pdf", "csv"):
            assert (out / f"{name}.{ending}").stat().st_size > 300
    with (out / "fig3.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2, "schemes, seeds, rounds"
    line = json.loads((folders[only.curves["fig3", "blr30", "ksd"][1]] / "rounds.jsonl").read_text().splitlines()[0])
    match = [row for row in rows if (row["scheme"], row["seed"], row["round"]) == ("ksd", "1", "1")]
    assert float(match[0]["accuracy"]) == pytest.approx(line["accuracy"], rel=1e-5)
    page = (out / "claims.md").read_text()
    assert len(re.findall(r"\n\| fig\d", page)) == len(verdicts)
    assert (out / "claims.html").read_text().count("<tr>") == len(verdicts) + 1
    before = {p.name: p.read_bytes() for p in out.glob("fig*")}
    write_conditions(dealt, folders, out, "fedstein reproduce all")
    assert before == {p.name: p.read_bytes() for p in out.glob("fig*")}, "same runs, same figures"


@pytest.mark.slow
def test_several_conditions_have_a_folder_each_and_one_page(miniature, monkeypatch):
    only, out, folders = miniature
    shrink(monkeypatch, only)
    moved = {key: tuple(replace(job, order="blocks") for job in jobs) for key, jobs in only.curves.items()}
    plans = {Condition("blocks", "reference"): Plan(only.figures, moved), Condition("dealt", "reference"): only}
    folders = {**folders, **{replace(job, order="blocks"): folder for job, folder in folders.items()}}
    write_conditions(plans, folders, out / "all", "fedstein reproduce all --order all")
    for name in ("blocks-reference", "dealt-reference"):
        assert (out / "all" / name / "fig1.png").exists()
        assert (out / "all" / name / "claims.md").exists()
    assert "| blocks, reference |" in (out / "all" / "sentences.md").read_text()


@pytest.mark.slow
def test_what_is_finished_is_not_run_again(miniature, monkeypatch):
    only, out, folders = miniature
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("nothing is left to run"))
    shares = []
    assert run_jobs(only.jobs, out / "runs", 2, lambda share, doing: shares.append(share)) == folders
    assert shares == [1.0]


@pytest.mark.slow
def test_schemes_of_one_seed_meet_the_same_clients_and_the_same_start(miniature):
    only, _, folders = miniature
    jobs = [job for job in only.jobs if job.seed == 1]
    clients = {(folders[job] / "clients.json").read_text() for job in jobs}
    assert len(jobs) == 4
    assert len(clients) == 1


def test_a_run_that_fails_is_named_with_its_own_words(tmp_path):
    job = Job("blr30", "ksd", "nonsense", 0, 1, False)
    with pytest.raises(FedsteinError, match=r"blr30-ksd-nonsense-r1-seed0 failed: .*nonsense"):
        run_jobs([job], tmp_path / "runs", 1, lambda share, doing: None)


def test_a_torn_start_is_begun_again_and_a_killed_run_goes_on(tmp_path):
    job = Job("blr30", "random", "reference", 0, 2, False)
    torn = tmp_path / "runs" / job.name
    torn.mkdir(parents=True)
    (torn / "environment.json").write_text("{")
    folders = run_jobs([job], tmp_path / "runs", 1, lambda share, doing: None)
    assert (folders[job] / "summary.json").exists()


@pytest.mark.slow
def test_an_interrupted_reproduction_stops_its_runs_and_goes_on(tmp_path):
    words = ["reproduce", "fig3", "--seeds", "1", "--rounds", "40", "--jobs", "1", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "fedstein", *words]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ}
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "out").glob("runs/*/rounds.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "goes on where it stopped" in said
    assert said.count("\n") == 1
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert left.stdout == "", "no run is left behind"


@pytest.mark.parametrize(
    ("words", "hint"),
    [(["fig9"], "fig1, fig2"), (["fig1", "--data", "all"], "embedded"), (["fig1", "--density", "lgo"], "log")],
)
def test_wrong_words_are_one_line(words, hint, tmp_path):
    result = fedstein("reproduce", *words, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert hint in result.stderr


def test_full_data_that_is_not_here_says_how_to_get_it(tmp_path, monkeypatch):
    from fedstein.cli.reproduce import reproduce_figures

    monkeypatch.setenv("FEDSTEIN_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="fedstein data get"):
        reproduce_figures("fig4", 1, 1, "full", "log", [], 1, tmp_path / "out", False, True)


def test_quick_is_smaller_everywhere():
    slow, quick = (sum(job.weight for job in plan(*FIGURES, quick=q).jobs) for q in (False, True))
    assert quick < slow / 5
    assert all(s.quick_rounds < s.rounds for s in SETTINGS.values())
    assert replace(plan("fig4").jobs[0], seed=7).name.endswith("seed7")
