"""More rounds for a finished run, runs below folders, and folders of several runs that go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import read_rounds
from safetensors.numpy import load_file

from fedstein.cli.resume import resume_series
from fedstein.errors import InputError
from fedstein.report import write_report
from fedstein.report.find import find_runs
from fedstein.runs import runner
from fedstein.runs.config import load_config
from fedstein.runs.extending import depends_on_total, extend
from fedstein.runs.series import Series, SeriesRun, write_series


def continue_run(folder: Path, rounds: int) -> None:
    opened, config = extend(folder, rounds)
    runner.resume(opened, config, lambda done, changes: None, lambda record: None)


def test_more_rounds_give_the_bits_of_a_run_that_was_started_with_them(run, tmp_path):
    run(tmp_path / "whole", "rounds=5")
    run(tmp_path / "short", "rounds=3")
    continue_run(tmp_path / "short", 5)
    assert read_rounds(tmp_path / "short") == read_rounds(tmp_path / "whole")
    ours, theirs = (load_file(tmp_path / name / "posterior.safetensors")["particles"] for name in ("short", "whole"))
    assert (ours == theirs).all()
    assert (tmp_path / "short" / "config.toml").read_text() == (tmp_path / "whole" / "config.toml").read_text()
    assert json.loads((tmp_path / "short" / "summary.json").read_text())["rounds"] == 5
    assert depends_on_total(load_config(tmp_path / "whole" / "config.toml")) is None
    with pytest.raises(InputError, match="has 5 rounds already"):
        extend(tmp_path / "short", 4)


def test_a_crash_between_the_changes_leaves_a_run_that_can_go_on(run, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    run(folder, "rounds=2")
    before = (folder / "config.toml").read_bytes()
    with monkeypatch.context() as patch:

        def fail(*arguments):
            raise KeyboardInterrupt

        patch.setattr("fedstein.runs.extending.write_bytes", fail)
        with pytest.raises(KeyboardInterrupt):
            extend(folder, 4)
    assert (folder / "config.toml").read_bytes() == before
    runner.resume(*runner.open_run(folder), lambda done, changes: None, lambda record: None)  # it is a run of 2 rounds
    assert len(read_rounds(folder)) == 2
    continue_run(folder, 3)
    assert len(read_rounds(folder)) == 3


def test_a_schedule_that_depends_on_the_total_is_said(make):
    config = make("sites.kind=curvature", "algorithm.schedule=cosine").config
    assert "depends on the total of rounds" in (depends_on_total(config) or "")


def test_report_finds_runs_at_any_depth_and_leaves_out_what_has_not_begun(run, tmp_path):
    for seed in (0, 1):
        run(tmp_path / "all" / "deep" / f"seed{seed}", "rounds=2", f"seed={seed}")
    waiting = tmp_path / "all" / "waiting"
    waiting.mkdir()
    (waiting / "config.toml").write_text((tmp_path / "all" / "deep" / "seed0" / "config.toml").read_text())
    (waiting / "rounds.jsonl").write_text("")
    result = write_report([tmp_path / "all"])
    assert result.html == tmp_path / "all" / "report" / "report.html"
    assert [row["folder"] for row in result.rows if row["level"] == "seed"] == ["seed0", "seed1"]
    assert "Without a finished round, so left out: waiting." in result.notes
    assert len(find_runs([tmp_path / "all", tmp_path / "all" / "deep" / "seed0"]).runs) == 2
    with pytest.raises(InputError, match="all 2 runs"):
        resume_series(tmp_path / "all" / "deep", None, 1, True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="contains none"):
        resume_series(tmp_path / "empty", None, 1, True)
    with pytest.raises(InputError, match="has no config"):
        write_report([tmp_path / "empty"])


@pytest.mark.slow
@pytest.mark.user_programs
def test_a_series_begins_the_runs_that_have_not_begun(run, make, tmp_path):
    place = tmp_path / "series"
    run(tmp_path / "whole", "rounds=3", "seed=1")
    runs = [SeriesRun.of(f"seed{seed}", make("rounds=3", f"seed={seed}").config, 1) for seed in (0, 1)]
    write_series(place, Series(tuple(runs), ("Said of both.",)))
    run(place / "seed0", "rounds=3", "seed=0")
    resume_series(place, None, 1, False)
    assert read_rounds(place / "seed1") == read_rounds(tmp_path / "whole")
    assert "Said of both." in (place / "report" / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.user_programs
def test_a_folder_of_several_runs_goes_on_with_more_rounds(run, tmp_path):
    run(tmp_path / "all" / "seed0", "rounds=2")
    run(tmp_path / "whole", "rounds=3")
    resume_series(tmp_path / "all", 3, 1, True)
    assert read_rounds(tmp_path / "all" / "seed0") == read_rounds(tmp_path / "whole")
