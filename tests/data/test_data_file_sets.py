"""Several files as one dataset, one client a file; and which columns of them are used."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedstein import data
from fedstein.data.file_sets import expand, file_clients
from fedstein.errors import InputError


def hospital(path: Path, seed: int, rows: int = 25, columns: str = "age,sex,dose,ill", **extra: str) -> Path:
    """A file with these columns in this order; extra columns have the same text in every row."""
    draw = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join([*columns.split(","), *extra])]
    for _ in range(rows):
        row = {"age": f"{draw.integers(30, 60)}", "sex": draw.choice(["f", "m"]), "dose": f"{draw.normal():.3f}"}
        row |= {"ill": draw.choice(["yes", "no"]), **extra}
        lines.append(",".join(str(row[name]) for name in lines[0].split(",")))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [
        hospital(tmp_path / "north.csv", 0),
        hospital(tmp_path / "south.csv", 1, columns="dose,ill,sex,age"),
        hospital(tmp_path / "east.csv", 2, rows=1),
    ]


def test_one_client_a_file_with_columns_by_name(files: list[Path]) -> None:
    got = data.load("file", path=[str(file) for file in files])
    assert got.client_names == ("north", "south", "east")
    assert got.feature_names == ("age", "sex=f", "sex=m", "dose")
    assert got.target_name == "ill"
    assert got.label_names == ("no", "yes")
    assert got.client_of_row is not None
    assert set(got.client_of_row) == {0, 1, 2}, "the test split must not take a client's only row"
    ages = got.train_x[:, 0] * got.scale[0] + got.mean[0]
    assert 29 < ages.min() < ages.max() < 61
    assert len(got.train_y) + len(got.test_y) == 51
    assert got.encoding is not None
    assert got.encoding.categories == {"sex": ["f", "m"]}


def test_the_same_as_one_file_with_a_client_column(files: list[Path], tmp_path: Path) -> None:
    several = data.load("file", path=files)
    lines = ["age,sex,dose,ill,site"]
    for file in files:
        header, *rows = file.read_text().splitlines()
        for row in rows:
            cells = dict(zip(header.split(","), row.split(","), strict=True)) | {"site": file.stem}
            lines.append(",".join(cells[name] for name in lines[0].split(",")))
    (tmp_path / "all.csv").write_text("\n".join(lines))
    one = data.load("file", path=tmp_path / "all.csv", client="site", target="ill")
    assert set(one.client_names) == set(several.client_names)
    key = {name: [several.client_names.index(name)] for name in one.client_names}
    assert one.client_of_row is not None
    assert several.client_of_row is not None
    for number, name in enumerate(one.client_names):
        assert (one.client_of_row == number).sum() == (several.client_of_row == key[name]).sum()


def test_folders_patterns_and_other_formats(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a table")
    (tmp_path / ".hidden.csv").write_text("not a table")
    names = ["east", "north", "south"]
    assert [file.stem for file in expand(tmp_path)] == names
    assert [file.stem for file in expand(str(tmp_path / "*.csv"))] == names
    assert data.load("file", path=str(tmp_path)).client_names == tuple(names)
    x = np.random.default_rng(0).normal(size=(30, 2))
    for name, order in (("a", [0, 1]), ("b", [1, 0])):
        columns = np.array(["p", "q"])[order]
        np.savez(tmp_path / f"{name}.npz", x=x[:, order], y=np.arange(30) % 2 + 1, feature_names=columns)
    got = data.load("file", path=str(tmp_path / "*.npz"))
    assert (got.client_names, got.classes, got.label_names) == (("a", "b"), 2, ("1", "2"))
    assert got.client_of_row is not None
    one, two = (np.sort(np.concatenate([got.train_x[got.client_of_row == k, 0]])) for k in (0, 1))
    assert np.isin(one, np.concatenate([two, got.test_x[:, 0]])).all()


def test_clients_can_be_told_apart(tmp_path: Path) -> None:
    assert file_clients([Path("/a/x.csv"), Path("/a/y.csv")]) == ("x", "y")
    assert file_clients([Path("/a/x.csv"), Path("/b/x.csv")]) == ("a/x", "b/x")
    assert file_clients([Path("/a/x.csv"), Path("/a/x.npz")]) == ("x.csv", "x.npz")
    assert len(set(file_clients([Path("/a/b/x.csv"), Path("/c/b/x.csv")]))) == 2


def test_columns_are_chosen_by_features_and_drop(files: list[Path]) -> None:
    assert data.load("file", path=files, drop=["sex"]).feature_names == ("age", "dose")
    assert data.load("file", path=files, features=["dose", "age"]).feature_names == ("dose", "age")
    assert data.load("file", path=files, features=["sex"], target="dose").task == "regression"


@pytest.mark.parametrize("width", [1, 2, 3])
def test_no_split_takes_the_only_row_of_a_client(width: int, tmp_path: Path) -> None:
    rows = [f"{i * 0.5},c{client},{i % 2}" for client in range(30) for i in range(width)]
    (tmp_path / "a.csv").write_text("a,site,y\n" + "\n".join([*rows, "1,big,0", "2,big,1"]) + "\n")
    got = data.load("file", path=tmp_path / "a.csv", client="site", test_fraction=0.5)
    assert got.client_of_row is not None
    assert len(set(got.client_of_row)) == 31
    assert len(got.test_y) > 0


def refused(path: Any, message: str, **options: Any) -> None:
    with pytest.raises(InputError, match=message) as caught:
        data.load("file", path=path, **options)
    assert "\n" not in str(caught.value)


def test_refusals(files: list[Path], tmp_path: Path) -> None:
    other = hospital(tmp_path / "more" / "west.csv", 3, columns="age,sex,ill")
    refused([*files, other], r"west.csv: expected a column 'dose', which north.csv has, .*data.drop")
    refused([other, *files], r"west.csv: expected a column 'dose', which north.csv has")
    refused([*files, other], r"west.csv: expected the columns dose", features=["age", "dose"])
    assert data.load("file", path=[*files, other], drop=["dose"]).feature_names == ("age", "sex=f", "sex=m")
    refused([*files, files[0]], "twice")
    refused([], "an empty list")
    refused(str(tmp_path / "more" / "*.npz"), "files that match")
    refused(files, "'ill' is in data.features and is data.target too", features=["age", "ill"], target="ill")
    refused(files, "'age' is in data.features and in data.drop", features=["age"], drop=["age"])
    refused(files, "data.drop names columns that do not exist: weight", drop=["weight"])
    refused(files, r"expected a column 'died' \(data.target\)", target="died")
    refused(files, "one of the labels", labels=["yes", "maybe"])
    refused(files, "no data.labels for a regression", labels=["1"], task="regression")
    np.savez(tmp_path / "more" / "a.npz", x=np.zeros((3, 2)), y=np.arange(3))
    np.savez(tmp_path / "more" / "b.npz", x=np.zeros((3, 2)), y=np.arange(3), feature_names=np.array(["p", "q"]))
    refused(str(tmp_path / "more" / "*.npz"), r"a.npz: expected an array feature_names, as b.npz")
    np.savez(tmp_path / "more" / "c.npz", x=np.zeros((3, 2)), y=np.arange(3), client=np.array(["k", "k", "l"]))
    refused(
        [tmp_path / "more" / "a.npz", tmp_path / "more" / "c.npz"], r"a.npz: expected an array that names the client"
    )
    refused(tmp_path / "more" / "a.npz", "data.drop needs names of columns", drop=["x0"])


@pytest.mark.parametrize("name", [np.nan, "nan", "", "NA"])
def test_a_client_without_a_name_is_refused(name: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 2))
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(4) % 2, client=np.array([1.0, 1.0, 2.0, name]))
    refused(tmp_path / "a.npz", "expected a client in column 'client', got .* on row 3")


def test_labels_that_differ_in_blanks_are_not_merged(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,y\n" + "1.5,x\n2.5,x \n3.5,z\n" * 5)
    refused(tmp_path / "a.csv", "got 'x' and 'x ' .*which differ only in blanks")
    (tmp_path / "b.csv").write_text("a, y\n" + "1.5, x\n2.5, z\n" * 5)  # the same blanks everywhere
    assert data.load("file", path=tmp_path / "b.csv").label_names == ("x", "z")
    np.savez(tmp_path / "c.npz", x=np.ones((4, 1)), y=np.array(["x", "x ", "z", "z"]))
    refused(tmp_path / "c.npz", "which differ only in blanks")


def test_counts_are_no_labels_unless_the_user_says_so(tmp_path: Path) -> None:
    rows = itertools.islice(itertools.cycle(range(15)), 60)
    (tmp_path / "a.csv").write_text("a,visits\n" + "".join(f"{i * 0.1},{count}\n" for i, count in enumerate(rows)))
    refused(tmp_path / "a.csv", r"'visits' has 15 different integers, .*set data.task")
    assert data.load("file", path=tmp_path / "a.csv", task="regression").task == "regression"
    few = tmp_path / "few.csv"
    few.write_text("a,visits\n" + "".join(f"{i * 0.1},{i % 5}\n" for i in range(60)))
    assert data.load("file", path=few).task == "classification"
    assert data.load("file", "regression", path=few).task == "regression", "the model that was chosen decides"


def two(folder: Path, first: str, second: str) -> list[Path]:
    """Two files of 40 rows; a row is the text with {i} for its number and {y} for 0 and 1 in turn."""
    files = [folder / "north.csv", folder / "south.csv"]
    for file, row in zip(files, (first, second), strict=True):
        header = "age,dose,y"
        file.write_text("\n".join([header, *(row.format(i=30 + i % 7, y=i % 2) for i in range(40))]) + "\n")
    return files


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("{i},1.{i},l{y}", "{i},2.{i},{y}", r"north.csv: column 'y' has the labels l0, l1, of which no other file has"),
        ("{i},1.{i},Yes", "{i},1.{i},yes", r"2 files: column 'y' has 'Yes' and 'yes', which differ only in capital"),
        ("{i},A{y},{y}", "{i},a{y},{y}", r"column 'dose' has 'A0' and 'a0', which differ only in .*data.categories"),
        ("{i},7,{y}", "{i},7,{y}", r"column dose has the same value in every row.*data.drop = \[\"dose\"\]"),
        (
            "7,7,{y}",
            "7,7,{y}",
            r"columns age, dose have the same value in every row.*data.drop = \[\"age\", \"dose\"\]",
        ),
        (
            '{i},"1,{i}",{y}',
            "{i},2.{i},{y}",
            r"north.csv: expected numbers with a decimal point in column 'dose', got '1,",
        ),
        (
            "{i},x{y},{y}",
            "{i},2.{i},{y}",
            r"2 files: column 'dose' has text in north.csv and numbers in south.csv; make",
        ),
    ],
    ids=["other labels", "case of labels", "case of categories", "constant", "constants", "decimal comma", "mixed"],
)
def test_two_codings_of_one_thing_are_refused(first: str, second: str, message: str, tmp_path: Path) -> None:
    refused(two(tmp_path, first, second), message)


def test_what_only_looks_odd_is_taken_if_the_user_names_it(tmp_path: Path) -> None:
    files = two(tmp_path, "{i},1.{i},l{y}", "{i},2.{i},{y}")
    assert data.load("file", path=files, labels=["l0", "l1", 0, 1]).classes == 4
    files = two(tmp_path, "{i},1.{i},a", "{i},2.{i},b")
    assert data.load("file", path=files).label_names == ("a", "b"), "clients with one label each are no other coding"
    files = two(tmp_path, "{i},7,{y}", "{i},7,{y}")
    assert data.load("file", path=files, features=["age", "dose"]).feature_names == ("age", "dose")
    files = two(tmp_path, "{i},A{y},{y}", "{i},a{y},{y}")
    found = data.load("file", path=files, categories={"dose": ["A0", "A1", "a0", "a1"]})
    assert found.feature_names == ("age", "dose=A0", "dose=A1", "dose=a0", "dose=a1")
