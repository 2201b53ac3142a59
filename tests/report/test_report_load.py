"""Run folders as they come: finished, killed, torn, broken, or none at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedstein.errors import InputError
from fedstein.evaluation.metrics import NAMES, tail
from fedstein.report import load_run


def lines_of(run: Path) -> list[str]:
    return (run / "rounds.jsonl").read_text("utf-8").splitlines()


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_run(path)
    message = str(caught.value)
    assert message.startswith("expected ")
    assert "got" in message
    assert "\n" not in message
    return message


def test_a_finished_run(make_run) -> None:
    folder = make_run("a", {"seed": 4})
    run = load_run(folder)
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    assert (run.seed, run.status, len(run.rounds)) == (4, "finished", 120)
    assert run.config["selection"]["kind"] == "ksd"
    assert run.final == summary["final"]
    assert run.tail == summary["tail"]
    assert run.selected_counts == summary["selected_counts"]
    assert run.reliability == summary["reliability"]
    assert run.per_round("bytes_up") == 4600
    assert run.gradients_per_round("report") == 300_000


def test_a_run_that_is_not_finished(make_run) -> None:
    run = load_run(make_run("a", {"partition.clients": 40}, stop=50))
    assert run.summary is None
    assert run.reliability is None
    assert run.status == "round 50 of 120"
    assert run.tail == tail(run.rounds)
    assert run.final == {m: run.rounds[49][m] for m in NAMES}
    assert len(run.selected_counts) == 40
    assert sum(run.selected_counts) == 50


def test_the_tail_of_a_killed_run_ends_at_its_last_evaluation(make_run) -> None:
    run = load_run(make_run("a", {"evaluate.every": 20}, stop=79))
    at_60 = run.rounds[59]["accuracy"]
    assert run.final["accuracy"] == at_60
    assert run.tail["accuracy"]["mean"] == at_60  # 3/4 of 60 is 45, so 60 is alone
    assert run.tail["accuracy"]["sd"] is None


def test_a_summary_from_before_the_run_was_extended_does_not_count(make_run) -> None:
    folder = make_run("a")
    extra = json.loads(lines_of(folder)[-1]) | {"round": 121}
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(json.dumps(extra) + "\n")
    assert load_run(folder).summary is None


@pytest.mark.parametrize("torn", ['{"round": 121, "sel', "{", '{"round": 121}'[:-1] + "\n", "\0\0\0\0"])
def test_a_torn_last_line_is_cut(make_run, torn: str) -> None:
    folder = make_run("a")
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(torn)
    assert len(load_run(folder).rounds) == 120


@pytest.mark.parametrize("broken", ['{"round": 7, "sel', "", "[]", '{"round": 7}', '"text"'])
def test_a_broken_line_in_the_middle_is_refused(make_run, broken: str) -> None:
    folder = make_run("a")
    lines = lines_of(folder)
    lines[6] = broken
    (folder / "rounds.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    assert "broken line 7" in refused(folder)


def test_a_round_that_comes_twice_is_refused(make_run) -> None:
    folder = make_run("a")
    lines = lines_of(folder)
    (folder / "rounds.jsonl").write_text("\n".join([*lines[:10], *lines[8:]]) + "\n", "utf-8")
    assert "broken line 11" in refused(folder)


def test_not_a_number_is_read_as_null(make_run) -> None:
    folder = make_run("a", stop=1)
    line = json.loads(lines_of(folder)[0]) | {"nll": float("nan"), "brier": float("inf")}
    (folder / "rounds.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    assert load_run(folder).final["nll"] is None
    assert load_run(folder).final["brier"] is None


def test_no_finished_round(make_run) -> None:
    folder = make_run("a", stop=0)
    assert "at least one finished round" in refused(folder)
    (folder / "rounds.jsonl").write_text('{"round": 1, "se', "utf-8")
    assert "at least one finished round" in refused(folder)


def test_what_is_not_a_run_folder(make_run, tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "nowhere")
    folder = make_run("runs/one")
    assert "the file" in refused(folder / "config.toml")
    assert str(folder) in refused(folder.parent)  # says where the runs are
    (folder / "rounds.jsonl").unlink()
    assert "no rounds.jsonl" in refused(folder)


def test_files_that_do_not_parse(make_run) -> None:
    folder = make_run("a")
    (folder / "summary.json").write_text("{", "utf-8")
    assert "summary.json" in refused(folder)
    (folder / "summary.json").write_text('{"rounds": 120}', "utf-8")
    assert "'final'" in refused(folder)
    (folder / "config.toml").write_text("seed = = 1", "utf-8")
    assert "valid TOML" in refused(folder)
