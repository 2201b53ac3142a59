"""Files of one's own on the command line: one client a file, names everywhere, and refusals that are one line."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fedstein.cli import main
from fedstein.cli.options import split_inputs
from fedstein.errors import InputError

SMALL = [
    "rounds=2",
    "algorithm.particles=4",
    "algorithm.local_steps=2",
    "engine.threads=1",
    "algorithm.batch_size=1000",
    "sites.expand=mean",
]
FILES = ("north.csv", "south.csv")


def fedstein(*words: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, draw = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    for name, header in zip(FILES, (["id", "age", "sex", "ill"], ["ill", "sex", "id", "age"]), strict=True):
        with (place / name).open("w", newline="") as file:
            table = csv.DictWriter(file, header)
            table.writeheader()
            for number in range(30):
                age, sex = str(draw.integers(30, 60)), str(draw.choice(["f", "m"]))
                ill = "yes" if draw.random() < 0.5 else "no"
                table.writerow({"id": number, "age": age if number else "", "sex": sex, "ill": ill})
    return place


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    settings = [*SMALL, 'data.drop=["id"]', "data.missing=mean", "data.target=ill"]
    words = [word for setting in settings for word in ("--set", setting)]
    assert fedstein("run", *(folder / name for name in FILES), *words, "--quiet", "--out", folder / "run") == 0
    return folder / "run"


def test_names_are_in_the_run_folder(run: Path) -> None:
    config = tomllib.loads((run / "config.toml").read_text())["data"]
    assert [Path(path).name for path in config["path"]] == list(FILES)
    assert config["features"] == ["age", "sex"]
    assert config["categories"] == {"sex": ["f", "m"]}
    assert config["labels"] == ["no", "yes"]
    assert (config["name"], config["target"], config["task"]) == ("file", "ill", "classification")
    assert [client["name"] for client in json.loads((run / "clients.json").read_text())] == ["north", "south"]
    facts = json.loads((run / "data.json").read_text())
    assert facts["features"] == ["age", "sex=f", "sex=m"]
    assert facts["columns"][0]["fill"] == pytest.approx(facts["mean"][0], rel=0.1)


def test_predict_codes_new_rows_like_the_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.csv").write_text("note,sex,age\nx,m,50\ny,f,\n")
    assert fedstein("predict", run, tmp_path / "new.csv") == 0
    one = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    (tmp_path / "other.csv").write_text("age,sex\n50,m\n,f\n")
    assert fedstein("predict", run, tmp_path / "other.csv") == 0
    assert list(csv.DictReader(io.StringIO(capsys.readouterr().out))) == one
    assert list(one[0]) == ["prediction", "p_no", "p_yes"]
    (tmp_path / "odd.csv").write_text("age,sex\n50,x\n")
    assert fedstein("predict", run, tmp_path / "odd.csv") == 2
    assert "expected one of the categories (f, m) in column 'sex', got 'x' on line 2" in capsys.readouterr().err


def test_a_resumed_run_names_its_clients(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(run, tmp_path / "run")
    assert fedstein("resume", tmp_path / "run", "--rounds", 3) == 0
    assert re.search(r"round 3/3 .* client (north|south)\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{}/north.csv", "{}/south.csv"], "2 files: column 'id' has an integer that is different in every row"),
        (["{}/north.csv", "--set", 'data.drop=["id"]'], "expected a value in column 'age', got nothing on line 2"),
        (["--set", "data.path={}/north.csv"], "north.csv: column 'id' has an integer that is different in every row"),
        (["{}", "--set", 'data.drop=["id","shoe"]'], "data.drop names columns that do not exist: shoe"),
        (["{}/*.parquet"], "files that match"),
        (["{}/north.csv", "--set", "data.path=x.csv"], "expected the data files once"),
        (["{}/north.xlsx"], "expected a config file (.toml) or data files"),
        (["a.toml", "b.toml"], "expected at most one config file"),
        (["{}/north.csv", "--set", "data.name=mnist"], "data.path is not used: data.name is 'mnist'"),
        (["{}/north.csv", "--set", "data.missing=zero"], "unknown value of data.missing: 'zero'"),
    ],
)
def test_refusals(words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedstein("run", *(word.replace("{}", str(folder)) for word in words)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_arguments_are_a_config_and_files() -> None:
    assert split_inputs(None, None) == (None, [])
    assert split_inputs([Path("c.toml")], ["seed=1"]) == (Path("c.toml"), ["seed=1"])
    assert split_inputs([Path("a.csv"), Path("c.toml"), Path("b é.npz")], []) == (
        Path("c.toml"),
        ['data.path=["a.csv", "b é.npz"]'],
    )
    with pytest.raises(InputError, match="config file"):
        split_inputs([Path("a.docx")], [])
