"""The leaderboard: its plan, ranks and costs, a miniature in process, and one with real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from fedstein.cli import main
from fedstein.errors import InputError
from fedstein.federation.records import RoundRecord
from fedstein.inference.methods import METHODS
from fedstein.report.leaderboard_figures import pareto
from fedstein.report.load import Run
from fedstein.runs import runner
from fedstein.runs.config import Config
from fedstein.runs.federate import load_dataset, prepare_run
from fedstein.studies.leaderboard import play, play_board, read_board, write_page
from fedstein.studies.leaderboard.page import by_seed
from fedstein.studies.leaderboard.plan import board_of
from fedstein.studies.leaderboard.ranks import critical_difference, mean_ranks, reached

PLAN = """
seeds = 2
trials = 2
default = "fedavg"
held_out = ["diabetes"]
[tasks.cancer]
rounds = 2
data.name = "breast_cancer"
partition.clients = 2
algorithm = {local_steps = 2, particles = 2}
[tasks.diabetes]
rounds = 2
data.name = "diabetes"
partition.clients = 2
model.kind = "linear"
algorithm = {local_steps = 2, particles = 2}
[methods.fedavg.algorithm]
kind = "fedavg"
[methods.fedgvi.algorithm]
kind = "fedgvi"
[methods.pooled_svgd.algorithm]
kind = "pooled_svgd"
[methods.by_itself]
alone = true
algorithm.kind = "fedavg"
"""


def in_this_process(jobs: Any, place: Path, workers: int, on_progress: Any, on_failure: Any) -> dict[Any, Path]:
    """What ``work_off`` does, without a process for each run."""
    folders = {}
    for job in jobs:
        folders[job] = place / job.name
        if not (folders[job] / "summary.json").exists():
            raw = job.config(1)
            config = Config.model_validate_json(job.text)
            try:
                runner.start(prepare_run(config, load_dataset(raw)), folders[job], lambda record: None)
            except InputError as error:
                on_failure(job, str(error))
    return folders


@pytest.mark.slow
def test_a_miniature_goes_from_a_plan_to_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    board = read_board(tmp_path / "plan.toml")
    assert board.factors == [0.5, 1.0]
    monkeypatch.setattr(play, "work_off", in_this_process)
    monkeypatch.setattr(play, "start_jax", lambda config: None)  # this process has its threads already
    entries = play_board(board, tmp_path / "board", 1, lambda share, doing: None)
    by_name = {(entry.task, entry.method): entry for entry in entries}
    assert len(entries) == 8
    assert "probability of each row" in by_name["diabetes", "fedgvi"].refused
    assert [run.seed for run in by_name["cancer", "fedavg"].runs] == [0, 1]
    assert by_name["cancer", "fedavg"].factor in board.factors
    alone = by_name["cancer", "by_itself"].runs
    assert [(run.seed, run.selected_counts) for run in alone] == [(0, [2, 0]), (0, [0, 2]), (1, [2, 0]), (1, [0, 2])]
    assert by_seed(by_name["cancer", "by_itself"], "nll")[1] == pytest.approx(
        np.mean([run.final["nll"] for run in alone[2:]])
    )
    for method in ("fedavg", "pooled_svgd"):  # nothing was tuned on the task that is held out
        assert by_name["diabetes", method].factor == by_name["cancer", method].factor
        assert not (tmp_path / "board" / "tuning" / f"diabetes-{method}.json").exists()
    page = write_page(board, entries, tmp_path / "board").read_text()
    for expected in ("## cancer", "## diabetes", "rmse - fedavg", "mean rank", "`fedgvi` did not run", "99% of pooled"):
        assert expected in page
    assert "best of 2" in page
    assert "by NLL" in page
    assert "On diabetes nothing was tuned" in page
    for name in ("ranks.png", "costs.png"):
        assert (tmp_path / "board" / name).stat().st_size > 5000
    tuned = {path: path.read_bytes() for path in (tmp_path / "board" / "tuning").iterdir()}
    again = play_board(board, tmp_path / "board", 1, lambda share, doing: None)
    assert write_page(board, again, tmp_path / "board").read_text() == page
    assert all(path.read_bytes() == content for path, content in tuned.items())


@pytest.mark.slow
def test_the_command_runs_processes_and_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plan = PLAN.replace("seeds = 2", "seeds = 1").replace("trials = 2", "trials = 1")
    plan = plan.replace('held_out = ["diabetes"]', "")
    plan = plan[: plan.index("[tasks.diabetes]")] + plan[plan.index("[methods.fedavg") : plan.index("[methods.fedgvi")]
    (tmp_path / "plan.toml").write_text(plan)
    words = ["leaderboard", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "board"), "--quiet", "--jobs", "1"]
    with pytest.raises(SystemExit, match=r"^0$"):
        main(words)
    page = (tmp_path / "board" / "leaderboard.md").read_text()
    assert "nothing was tuned" in page
    with pytest.raises(SystemExit, match=r"^0$"):
        main(words)
    assert (tmp_path / "board" / "leaderboard.md").read_text() == page


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({}, "at least one"),
        ({"tasks": {"a": {}}, "sed": 3}, "unknown key 'sed'"),
        ({"tasks": {"a": 3}}, "tables of settings"),
        ({"tasks": {"a/b": {}}}, "names folders"),
        ({"tasks": {"a": {}}, "seeds": 0}, "whole number from 1"),
        ({"tasks": {"a": {}}, "fraction": 2.0}, "between 0 and 1"),
        ({"tasks": {"a": {}}, "default": "nobody"}, "is no method of the plan"),
        ({"tasks": {"a": {}}, "criterion": "luck"}, "expected one of: nll, accuracy"),
        ({"tasks": {"a": {}, "b": {}}, "held_out": ["c"]}, "some, but not all, of: a, b"),
        ({"tasks": {"a": {}}, "held_out": ["a"]}, "some, but not all"),
    ],
)
def test_a_wrong_plan_is_refused_by_a_sentence(raw: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        board_of(raw, "plan.toml")


def test_a_run_that_fails_is_listed_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_one(jobs: Any, place: Path, workers: int, on_progress: Any, on_failure: Any) -> dict[Any, Path]:
        bad = next(job for job in jobs if job.name == "cancer-pooled_svgd-seed1")
        on_failure(bad, "the run cancer-pooled_svgd-seed1 failed: the particles are no longer finite")
        return {job: place / job.name for job in jobs}

    monkeypatch.setattr(play, "work_off", fail_one)
    monkeypatch.setattr(play, "load_run", lambda folder: folder.name)
    plan = PLAN.replace("trials = 2", "trials = 1")
    (tmp_path / "plan.toml").write_text(plan)
    entries = play_board(read_board(tmp_path / "plan.toml"), tmp_path / "board", 1, lambda share, doing: None)
    by_name = {(entry.task, entry.method): entry for entry in entries}
    assert by_name["cancer", "fedavg"].runs == ("cancer-fedavg-seed0", "cancer-fedavg-seed1")
    assert by_name["cancer", "pooled_svgd"].runs == ()
    assert "1 of 2 runs failed" in by_name["cancer", "pooled_svgd"].refused
    assert "no longer finite" in by_name["cancer", "pooled_svgd"].refused


def test_without_methods_everything_registered_takes_part() -> None:
    assert list(board_of({"tasks": {"a": {}}}, "plan").methods) == list(METHODS)


def test_ranks_and_their_critical_difference() -> None:
    scores = {"a": {"x": 0.9, "y": 0.8, "z": 0.8}, "b": {"x": 0.5, "y": 0.7, "z": 0.1}}
    expected = np.mean([rankdata([-0.9, -0.8, -0.8]), rankdata([-0.5, -0.7, -0.1])], axis=0)
    assert list(mean_ranks(scores).values()) == pytest.approx(expected)
    assert mean_ranks({"a": {"x": 1.0}}) == {}
    # Demsar 2006, table 5: q = 2.343 for 3 classifiers and 2.949 for 7.
    assert critical_difference(3, 10) == pytest.approx(2.343 * np.sqrt(3 * 4 / 60), rel=1e-3)
    assert critical_difference(7, 20) == pytest.approx(2.949 * np.sqrt(7 * 8 / 120), rel=1e-3)


def test_costs_until_a_target_and_the_methods_that_nothing_beats() -> None:
    rounds = [
        RoundRecord(round=i + 1, selected=[0], bytes_down=10, bytes_up=5, seconds=0.0, metrics={"accuracy": a},
                    row_gradients={"train": 7, "site": 1})
        for i, a in enumerate([0.5, 0.8, 0.9])
    ]  # fmt: skip
    run = Run(Path(), {}, rounds, None, None)
    assert reached(run, 0.75) == (2, 30, 16)
    assert reached(run, 0.95) is None
    assert pareto({"a": (1.0, 0.5), "b": (2.0, 0.4), "c": (3.0, 0.9), "d": (1.0, 0.3)}) == ["a", "c"]
