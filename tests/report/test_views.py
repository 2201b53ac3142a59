"""What the page and the report show: the numbers are those of the rounds, and what is missing is said."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedstein.errors import InputError
from fedstein.report.follow import FollowedRun, walk_runs
from fedstein.report.views.build import views
from fedstein.report.views.details import details
from fedstein.report.views.points import POINTS, bucketed, short, step


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def with_law(folder: Path, clients: int = 30) -> Path:
    """Give every round selection probabilities and reports."""
    rng = np.random.default_rng(5)
    lines = lines_of(folder)
    for line in lines:
        reports = rng.gamma(2.0, size=clients)
        line["reports"] = reports.tolist()
        line["probabilities"] = (reports / reports.sum()).tolist()
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_buckets_are_means_and_ends_of_their_members() -> None:
    values = np.array([1.0, 2.0, np.nan, 4.0, 7.0])
    assert bucketed(values, 2, "mean").tolist() == [1.5, 4.0, 7.0]
    assert bucketed(values, 2, "min").tolist() == [1.0, 4.0, 7.0]
    assert bucketed(values, 2, "max").tolist() == [2.0, 4.0, 7.0]
    assert bucketed(values, 4, "sum").tolist() == [7.0, 7.0]
    assert bucketed(np.arange(5.0), 2, "last").tolist() == [1.0, 3.0, 4.0]
    assert np.isnan(bucketed(np.array([np.nan, np.nan]), 2, "mean")).all()


@pytest.mark.parametrize("count", [1, 400, 401, 10_000, 123_456])
def test_a_curve_has_few_points_in_groups_of_a_power_of_two(count: int) -> None:
    size = step(count)
    assert size & (size - 1) == 0
    assert -(-count // size) <= POINTS
    assert size == 1 or -(-count // (size // 2)) > POINTS


def test_numbers_are_short_and_never_infinite() -> None:
    assert [short(v) for v in (1.23456789, 3.0, float("nan"), float("inf"), None)] == [1.2346, 3, None, None, None]


def test_curves_are_means_over_seeds_with_the_range_on_every_axis(make_run) -> None:
    folders = [make_run(f"s{seed}", {"seed": seed}) for seed in (0, 1)]
    found = views(folders, posterior=False)
    group = found["groups"][0]
    assert (group["seeds"], len(found["groups"])) == ([0, 1], 1)
    curve, both = group["curves"]["accuracy"], [lines_of(folder) for folder in folders]
    values = np.array([[line["accuracy"] for line in lines] for lines in both])
    np.testing.assert_allclose(curve["mean"], values.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(curve["low"], values.min(axis=0), rtol=1e-4)
    np.testing.assert_allclose(curve["high"], values.max(axis=0), rtol=1e-4)
    assert curve["x"]["round"] == list(range(1, 121))
    sent = np.cumsum([[line["bytes_down"] + line["bytes_up"] for line in lines] for lines in both], axis=1)
    np.testing.assert_allclose(curve["x"]["bytes"], sent.mean(axis=0), rtol=1e-4)
    work = np.cumsum([[sum(line["row_gradients"].values()) for line in lines] for lines in both], axis=1)
    np.testing.assert_allclose(curve["x"]["gradients"], work.mean(axis=0), rtol=1e-4)
    time = np.cumsum([[line["seconds"] for line in lines] for lines in both], axis=1)
    np.testing.assert_allclose(curve["x"]["seconds"], time.mean(axis=0), rtol=1e-4)


def test_headline_numbers_have_their_change(make_run) -> None:
    folder = make_run("a")
    entry = views(folder, posterior=False)["groups"][0]["headline"][0]
    lines = lines_of(folder)
    assert entry["name"] == "accuracy"
    assert entry["value"] == pytest.approx(lines[-1]["accuracy"], rel=1e-4)
    assert entry["since"] == 12
    assert entry["change"] == pytest.approx(lines[-1]["accuracy"] - lines[-13]["accuracy"], rel=1e-3)


def test_selection_views_count_what_the_rounds_say(make_run) -> None:
    folder = with_law(make_run("a"))
    run = views(folder, posterior=False)["runs"][0]
    lines = lines_of(folder)
    heat = run["heat_map"]
    assert heat["each"] == 2  # 120 rounds in at most 100 columns
    law = np.array([line["probabilities"] for line in lines])
    np.testing.assert_allclose(np.array(heat["probability"]).T, law.reshape(60, 2, 30).mean(axis=1), atol=1e-6)
    assert sum(map(sum, heat["picks"])) == 120
    counts = np.bincount([line["selected"][0] for line in lines], minlength=30)
    assert [sum(row) for row in heat["picks"]] == counts.tolist()
    reports = run["reports"]
    recent = np.array([line["reports"] for line in lines[-30:]])
    assert reports["median"] == sorted(reports["median"], reverse=True)
    assert max(reports["median"]) == pytest.approx(np.median(recent, axis=0).max(), rel=1e-4)


def test_the_last_clients_may_never_be_candidates(make_run) -> None:
    """As if they were barred: their rows of the heat map are there and empty."""
    folder = with_law(make_run("a"), clients=28)
    lines = [{**line, "candidates": 28, "candidate_ids": list(range(28))} for line in lines_of(folder)]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run,) = views([folder], posterior=False)["runs"]
    heat = run["heat_map"]
    assert len(heat["probability"]) == len(heat["clients"]) == 30
    assert all(value is None for row in heat["probability"][28:] for value in row)
    assert any(value is not None for row in heat["probability"][:28] for value in row)


def test_a_scheme_without_a_law_says_so(make_run) -> None:
    run = views(make_run("a", {"selection.kind": "round_robin"}), posterior=False)["runs"][0]
    assert run["heat_map"]["probability"] is None
    assert "no selection probabilities" in run["heat_map"]["notes"][0]
    assert "needs none" in run["reports"]["missing"]


def test_bins_with_few_rows_are_marked(make_run) -> None:
    folder = make_run("a")
    summary = json.loads((folder / "summary.json").read_text())
    counts = [b["count"] for b in summary["reliability"]]
    view = views(folder, posterior=False)["groups"][0]["reliability"]
    assert view["rows"] == sum(counts)
    assert [b["few"] for b in view["bins"]] == [count < 50 for count in counts]
    assert any(b["few"] for b in view["bins"])
    assert view["ece"] == pytest.approx(summary["final"]["ece"], rel=1e-3)


def test_the_size_does_not_grow_with_the_rounds(make_run) -> None:
    sizes = []
    for rounds in (1000, 4000):
        folder = with_law(make_run(f"r{rounds}", {"rounds": rounds}))
        sizes.append(len(json.dumps(views(folder, posterior=False))))
    assert sizes[1] < 1.3 * sizes[0] < 400_000


def test_a_growing_run_is_followed_and_a_half_written_line_waits(make_run) -> None:
    folder = make_run("a", stop=5)
    file = folder / "rounds.jsonl"
    whole = file.read_text().splitlines(keepends=True)
    file.write_text("".join(whole[:2]) + whole[2][:30])
    run = FollowedRun(folder)
    assert len(run.table) == 2
    assert not run.read()
    with file.open("a") as out:
        out.write(whole[2][30:] + whole[3])
    assert run.read()
    assert run.table.last_round == 4
    assert run.problems == []


def test_a_run_that_is_cut_back_and_resumed_is_read_anew(make_run, tmp_path: Path) -> None:
    folder = make_run("a", stop=9)
    run = FollowedRun(folder)
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "new").write_text("".join(lines[:4]))
    (tmp_path / "new").replace(folder / "rounds.jsonl")  # as RunFolder.cut_back does it
    assert run.read()
    assert run.table.last_round == 4


def test_a_damaged_folder_shows_what_can_be_shown(make_run) -> None:
    folder = make_run("a")
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    lines[6] = '{"round": 7, "sel\n'
    (folder / "rounds.jsonl").write_text("".join(lines))
    (folder / "summary.json").write_text("{")
    found = views(folder)
    run = found["runs"][0]
    assert run["state"] == "damaged"
    assert any("Line 7" in text for text in run["problems"])
    assert any("summary.json is damaged" in text for text in run["problems"])
    assert len(found["groups"][0]["curves"]["accuracy"]["mean"]) == 119
    assert "after the last round" in run["details"]["forest"]["missing"]


@pytest.mark.parametrize("lost", ["config.toml", "rounds.jsonl"])
def test_a_folder_without_its_main_files_is_no_error(make_run, lost: str) -> None:
    folder = make_run("a")
    (folder / lost).unlink()
    run = views(folder)["runs"][0]
    assert any(lost in text for text in run["problems"])
    json.dumps(run, allow_nan=False)


def test_lines_with_impossible_numbers_are_left_out_and_said(make_run) -> None:
    folder = make_run("a")
    lines = lines_of(folder)
    lines[5]["accuracy"] = "high"
    lines[9]["selected"] = [10**9]
    lines[11]["selected"] = [-1]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = views(folder, posterior=False)
    assert [f"Line {n} " in text for n, text in zip((6, 10, 12), found["runs"][0]["problems"], strict=True)] == [
        True
    ] * 3
    assert len(found["groups"][0]["curves"]["accuracy"]["mean"]) == 117


def test_a_run_that_nobody_runs_says_how_to_go_on(make_run) -> None:
    def quiet(name: str, change: str, **options: Any) -> list[str]:
        folder = make_run(name, **options)
        if change == "half":
            with (folder / "rounds.jsonl").open("a") as file:
                file.write('{"round": 10')
        else:
            (folder / "summary.json").unlink()
        os.utime(folder / "rounds.jsonl", (1.0, 1.0))  # nobody has written to it for years
        run = views(folder, posterior=False)["runs"][0]
        assert run["state"] == "stopped"
        return run["problems"]

    assert ["half written" in text for text in quiet("a", "half", stop=9)] == [True]
    assert ["fedstein resume writes it again" in text for text in quiet("b", "summary")] == [True]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("summary.json", '{"rounds": 120, "final": 3}', "summary.json is damaged"),
        ("clients.json", "[3]", "clients.json is damaged"),
        ("data.json", "[]", "data.json is damaged"),
    ],
)
def test_files_of_the_wrong_form_are_said(make_run, file: str, text: str, said: str) -> None:
    folder = make_run("a")
    (folder / file).write_text(text)
    run = views(folder, posterior=False)["runs"][0]
    assert [said in problem for problem in run["problems"]] == [True]
    assert run["round"] == 120


def test_damaged_bins_and_particles_are_not_called_missing(make_run) -> None:
    folder = make_run("a")
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "reliability": [1, 2]}))
    (folder / "particles.jsonl").write_text("{half\n")
    found = views(folder)
    assert "bins in summary.json are damaged" in found["groups"][0]["reliability"]["missing"]
    assert "no line that can be read" in found["runs"][0]["details"]["particles"]["missing"]


def test_a_folder_of_an_older_version_is_called_so(make_run) -> None:
    folder = make_run("a")
    (folder / "environment.json").write_text('{"packages": {"fedstein": "0.0.9"}}')
    assert "an older version of Fedstein (0.0.9)" in details(FollowedRun(folder))["forest"]["missing"]


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a run folder"):
        views(tmp_path / "none")


def test_a_copy_of_a_run_counts_once(make_run) -> None:
    found = views([make_run("a"), make_run("b")], posterior=False)
    assert found["groups"][0]["seeds"] == [0]
    assert "left out" in found["notes"][0]


def test_runs_are_found_below_a_folder(make_run, tmp_path: Path) -> None:
    make_run("x/seed-0", stop=1)
    make_run("y", stop=1)
    (tmp_path / "y" / "report").mkdir()
    assert [name for name, _ in walk_runs(tmp_path)] == ["x/seed-0", "y"]
    assert [name for name, _ in walk_runs(tmp_path / "y")] == ["y"]
    assert list(walk_runs(tmp_path / "later")) == []


def test_failed_clients_are_marks_on_the_axis_of_rounds(make_run) -> None:
    folder = make_run("a", stop=6)
    lines = lines_of(folder)
    lines[3]["failed"] = [2]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    view = views(folder, posterior=False)["runs"][0]["incidents"]
    assert view["marks"] == [[4, 0, "client 2"]]
    quiet = views(make_run("b", stop=6), posterior=False)["runs"][0]["incidents"]
    assert "Nothing went wrong" in quiet["missing"]


def test_details_of_an_old_folder_say_what_is_missing(make_run, tmp_path: Path) -> None:
    found = details(FollowedRun(make_run("a")))
    assert set(found) == {"forest", "particles", "rows", "clients"}
    assert all("missing" in view for view in found.values())
    assert str(tmp_path) not in json.dumps(found)


def test_among_many_runs_the_first_of_each_group_are_shown_in_detail(make_run) -> None:
    folders = [make_run(f"{k}{s}", {"selection.kind": k, "seed": s}, stop=1) for k in ("ksd", "hip") for s in range(4)]
    runs = views(folders)["runs"]
    detailed = [run["id"] for run in runs if "many runs" not in run["details"]["forest"]["missing"]]
    assert detailed == ["ksd0", "ksd1", "ksd2", "ksd3", "hip0", "hip1"]
