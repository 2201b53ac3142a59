"""The leaderboard: its plan, ranks and costs, a miniature in process, and one with real processes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import rankdata

import fedstein
from fedstein import data
from fedstein.cli import main
from fedstein.data import DATASETS
from fedstein.errors import InputError
from fedstein.federation.records import RoundRecord
from fedstein.inference.methods import METHODS
from fedstein.report.labels import place_labels
from fedstein.report.leaderboard_figures import cliques, pareto
from fedstein.report.load import Run, load_run
from fedstein.runs import sequential_jobs
from fedstein.runs.reading import resolve_layers
from fedstein.runs.series import SeriesRun
from fedstein.studies.leaderboard import play, play_board, read_board, write_page
from fedstein.studies.leaderboard.plan import board_of
from fedstein.studies.leaderboard.quoted import quoted_scores
from fedstein.studies.leaderboard.ranks import costs, critical_difference, mean_ranks, reached
from fedstein.studies.leaderboard.scores import by_seed

PLAN = """
seeds = 2
trials = 2
default = "fedavg"
held_out = ["diabetes"]
[tasks.cancer]
rounds = 2
data.name = "breast_cancer"
partition.clients = 2
ood = "breast_cancer"
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
[methods.fedprox.algorithm]
kind = "fedprox"
[methods.by_itself]
alone = true
tasks = ["cancer"]
algorithm.kind = "fedavg"
"""


@pytest.mark.slow
def test_a_miniature_goes_from_a_plan_to_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    board = read_board(tmp_path / "plan.toml")
    assert board.factors == [0.5, 1.0]
    for module in (play, sequential_jobs):  # this process has its threads already
        monkeypatch.setattr(module, "start_jax", lambda config: None)
    entries = play_board(board, tmp_path / "board", 0, lambda share, doing: None)
    by_name = {(entry.task, entry.method): entry for entry in entries}
    assert len(entries) == 9
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
    for expected in (
        *("## cancer", "## diabetes", "Minus `fedavg`", "| method | rmse | nll |", "Mean ranks", "99% of pooled"),
        *("`fedgvi` did not run", "no federated methods: by_itself, pooled_svgd", "ood auroc", "The runs took"),
    ):
        assert expected in page
    areas = by_name["cancer", "fedavg"].areas
    assert len(areas) == 2
    assert all(area == 0.5 for area in areas), "rows that are no different cannot be told from the test rows"
    assert by_name["diabetes", "fedavg"].areas == ()
    assert not any(entry.method == "by_itself" for entry in entries if entry.task == "diabetes")
    assert "best of 2" in page
    assert "by NLL" in page
    assert "On diabetes nothing was tuned" in page
    for name in ("ranks.png", "costs.png"):
        assert (tmp_path / "board" / name).stat().st_size > 5000
    tuned = {path: path.read_bytes() for path in (tmp_path / "board" / "tuning").iterdir()}
    again = play_board(board, tmp_path / "board", 0, lambda share, doing: None)
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
        ({"tasks": {"a": {}}, "default": "nobody"}, "is not a method of the plan"),
        ({"tasks": {"a": {}}, "criterion": "luck"}, "expected one of: nll, accuracy"),
        ({"tasks": {"a": {}, "b": {}}, "held_out": ["c"]}, "some, but not all, of: a, b"),
        ({"tasks": {"a": {}}, "held_out": ["a"]}, "some, but not all"),
        ({"tasks": {"a": {"ood": "b"}}}, "ood = 'b' of the task a; expected one of: covertype"),
        ({"tasks": {"a": {}}, "methods": {"m": {"tasks": ["b"]}}}, "of the method m; expected a list of: a"),
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

    monkeypatch.setattr(play, "run_jobs", fail_one)
    monkeypatch.setattr(play, "load_run", lambda folder: folder.name)
    monkeypatch.setattr(play, "quoted_scores", lambda runs, memo: ())
    plan = PLAN.replace("trials = 2", "trials = 1").replace('ood = "breast_cancer"\n', "")
    (tmp_path / "plan.toml").write_text(plan)
    entries = play_board(read_board(tmp_path / "plan.toml"), tmp_path / "board", 1, lambda share, doing: None)
    by_name = {(entry.task, entry.method): entry for entry in entries}
    assert by_name["cancer", "fedavg"].runs == ("cancer-fedavg-seed0", "cancer-fedavg-seed1")
    assert by_name["cancer", "pooled_svgd"].runs == ()
    assert "1 of 2 runs failed" in by_name["cancer", "pooled_svgd"].refused
    assert "no longer finite" in by_name["cancer", "pooled_svgd"].refused


def test_labels_cover_neither_each_other_nor_points() -> None:
    figure = Figure(figsize=(5, 3.6), dpi=110)
    panel = figure.subplots()
    draw = np.random.default_rng(0)
    points = [(float(x), float(y)) for x, y in 0.5 + 0.02 * draw.normal(size=(7, 2))]  # all of them close together
    panel.plot(*zip(*points, strict=True), "o")
    panel.set(xlim=(0, 1), ylim=(0, 1))
    figure.draw_without_rendering()
    boxes = place_labels(panel, [(f"method {i}", x, y) for i, (x, y) in enumerate(points)], points)
    assert len(boxes) == 7
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    centres = [panel.transData.transform(point) for point in points]
    assert not any(box.contains(*centre) for box in boxes for centre in centres)


def test_without_methods_everything_registered_takes_part() -> None:
    assert list(board_of({"tasks": {"a": {}}}, "plan").methods) == list(METHODS)


def test_some_tasks_of_a_plan() -> None:
    board = board_of({"tasks": {"a": {}, "b": {}, "c": {"ood": "mnist"}}, "held_out": ["b"]}, "plan")
    assert list(board.only([]).tasks) == ["a", "b", "c"]
    chosen = board.only(["b"])
    assert (list(chosen.tasks), chosen.held_out, chosen.ood) == (["b"], ("b",), {})
    with pytest.raises(InputError, match="--task d: expected one of: a, b, c"):
        board.only(["d"])


def test_the_plan_of_the_experiments_names_every_method_and_three_tasks_that_are_held_out() -> None:
    board = read_board(Path(__file__).parents[2] / "experiments" / "leaderboard" / "plan.toml")
    assert {settings["algorithm"]["kind"] for settings in board.methods.values()} >= set(METHODS)
    assert len(board.held_out) == 3
    for task, settings in board.tasks.items():
        assert settings["data"]["name"] in DATASETS, task


def test_a_run_that_was_stopped_goes_on_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequential_jobs, "start_jax", lambda config: None)
    settings = {"rounds": 2, "data": {"name": "breast_cancer"}, "partition": {"clients": 2}}
    config = resolve_layers([("test", {**settings, "algorithm": {"kind": "fedavg", "local_steps": 2}})]).config
    jobs = [SeriesRun.of(f"run-seed{seed}", config.model_copy(update={"seed": seed}), 1) for seed in (0, 1)]
    started = sequential_jobs.runner.continue_rounds
    failures: list[str] = []

    def stop(*given: Any) -> Any:
        raise sequential_jobs.runner.Interrupted("stopped after round 0")

    monkeypatch.setattr(sequential_jobs.runner, "continue_rounds", stop)
    with pytest.raises(sequential_jobs.runner.Interrupted):
        sequential_jobs.run_jobs_here(jobs, tmp_path, lambda share, doing: None, lambda job, why: failures.append(why))
    monkeypatch.setattr(sequential_jobs.runner, "continue_rounds", started)
    (tmp_path / "run-seed1").mkdir()  # a start that was killed before it wrote anything
    folders = sequential_jobs.run_jobs_here(
        jobs, tmp_path, lambda share, doing: None, lambda job, why: failures.append(why)
    )
    assert [load_run(folder).status for folder in folders.values()] == ["finished", "finished"]
    assert failures == []


@pytest.mark.slow
def test_draws_are_scored_in_place_of_particles_and_their_bytes_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose sites were refined predicts with draws; the expected NLL comes from ``Posterior.predict``."""
    monkeypatch.setattr(sequential_jobs, "start_jax", lambda config: None)
    settings: dict[str, Any] = {"rounds": 4, "data": {"name": "breast_cancer"}, "partition": {"clients": 2}}
    settings |= {"sites": {"expand": "variational"}}
    config = resolve_layers([("test", settings)]).config
    job = SeriesRun.of("task-method-seed0", config, 1)
    folder = sequential_jobs.run_jobs_here([job], tmp_path, lambda share, doing: None, lambda job, why: None)[job]
    run, dataset = load_run(folder), data.load("breast_cancer")
    [found] = quoted_scores([run], tmp_path / "quoted.json")
    p = fedstein.load(folder).predict(dataset.test_x * dataset.scale + dataset.mean, using="weighted")
    assert found["nll"] == pytest.approx(-np.mean(np.log(p[np.arange(len(p)), dataset.test_y])))
    assert found["nll"] != run.final["nll"]
    assert quoted_scores([run], tmp_path / "quoted.json") == (found,)
    (folder / "weighted.safetensors").unlink()
    assert quoted_scores([run], tmp_path / "quoted.json") == ()
    rounds = sum(record["bytes_down"] + record["bytes_up"] for record in run.rounds)
    assert run.summary is not None
    passes = run.summary["refined"]["bytes_down"] + run.summary["refined"]["bytes_up"]
    assert costs(run)[0] > rounds + passes > rounds


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
    assert cliques([1.0, 2.0, 2.5, 4.0, 9.0], 2.0) == [(0, 2), (1, 3)]
    assert cliques([1.0, 2.0], 0.5) == []
    assert pareto({"a": (1.0, 0.5), "b": (2.0, 0.4), "c": (3.0, 0.9), "d": (1.0, 0.3)}) == ["a", "c"]
