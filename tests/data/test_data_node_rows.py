"""A node's own file: the rows a federation expects, or a message that names what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedstein import data
from fedstein.data.node_rows import Expectation, load_rows
from fedstein.data.scaling import add, first_sums, mean_from, scale_from, scale_rows, second_sums
from fedstein.errors import InputError

LABELS = Expectation(features=("age", "dose"), target="outcome", task="classification", labels=("well", "ill"))
REAL = Expectation(features=("age", "dose"), target="outcome", task="regression", labels=())


def write(folder: Path, text: str, name: str = "clinic7.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "clinic7.npz", **arrays)
    return folder / "clinic7.npz"


def parquet(folder: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / "clinic7.parquet")
    return folder / "clinic7.parquet"


def three_files(folder: Path, outcome: list[Any]) -> list[Path]:
    generator = np.random.default_rng(0)
    age, dose = generator.integers(1, 99, size=len(outcome)), generator.normal(size=len(outcome))
    lines = [f"{d!r},note,{o},{a}" for d, o, a in zip(dose.tolist(), outcome, age.tolist(), strict=True)]
    return [
        write(folder, "\n".join(["dose,remark,outcome,age", *lines])),
        npz(
            folder,
            x=np.column_stack([dose, np.zeros(len(age)), age]),
            outcome=np.array(outcome),
            feature_names=np.array(["dose", "other", "age"]),
        ),
        parquet(folder, when=age.astype("datetime64[D]"), outcome=outcome, dose=dose, age=age),
    ]


@pytest.mark.parametrize(
    ("expectation", "outcome"),
    [
        (LABELS, ["ill", "well", "ill", "ill"]),
        (LABELS._replace(labels=("0", "2", "10")), [10, 0, 2, 10]),
        (REAL, [0.1, -2.5, 1e-7, 1 / 3]),
    ],
)
def test_csv_npz_and_parquet_give_the_same_rows(tmp_path: Path, expectation: Expectation, outcome: list[Any]) -> None:
    csv, *others = (load_rows(path, expectation) for path in three_files(tmp_path, outcome))
    assert (csv.x.shape, csv.x.dtype) == ((4, 2), np.float64)
    assert csv.y.dtype == (np.float64 if expectation.task == "regression" else np.int32)
    expected = outcome if expectation.task == "regression" else [expectation.labels.index(str(o)) for o in outcome]
    assert csv.y.tolist() == expected
    for other in others:
        assert other.y.dtype == csv.y.dtype
        np.testing.assert_array_equal(other.x, csv.x)
        np.testing.assert_array_equal(other.y, csv.y)


def test_columns_come_in_the_expected_order_and_others_may_be_there(tmp_path: Path) -> None:
    path = write(tmp_path, "name,dose,outcome,age\nAnn,0.5,ill,40\nBob,1.5,well,50\n")
    got = load_rows(path, LABELS)
    assert got.x.tolist() == [[40, 0.5], [50, 1.5]]
    assert got.y.tolist() == [1, 0]


def test_a_client_without_every_label_fits(tmp_path: Path) -> None:
    assert load_rows(write(tmp_path, "age,dose,outcome\n1,2,ill\n"), LABELS).y.tolist() == [1]


def test_labels_are_spelt_as_in_a_users_own_file(tmp_path: Path) -> None:
    expectation = LABELS._replace(labels=("1.0", "2"))
    assert load_rows(write(tmp_path, "age,dose,outcome\n1,2, 1\n1,2,2.0\n"), expectation).y.tolist() == [0, 1]


def test_an_npz_without_names_goes_by_position(tmp_path: Path) -> None:
    x = np.arange(6.0).reshape(3, 2)
    path = npz(tmp_path, x=x, outcome=np.array(["ill", "well", "ill"]))
    np.testing.assert_array_equal(load_rows(path, LABELS).x, x)
    expected = r"^clinic7.npz: expected 2 columns in x \(age, dose\), got 3; .* feature_names$"
    with pytest.raises(InputError, match=r"expected 1 columns in x \(x0\), got 2"):  # a name that nobody gave
        load_rows(path, LABELS._replace(features=("x0",)))
    with pytest.raises(InputError, match=expected):
        load_rows(npz(tmp_path, x=np.zeros((3, 3)), outcome=np.array(["ill"] * 3)), LABELS)


@pytest.mark.parametrize(
    ("text", "expectation", "message"),
    [
        ("age,outcome\n1,ill\n", LABELS, "expected the columns dose, which are missing; add them to the file"),
        ("a,b,outcome\n1,2,ill\n", LABELS, "expected the columns age, dose, which"),
        ("age,dose\n1,2\n", LABELS, r"expected a column 'outcome' \(data.target\), got columns age, dose"),
        ("age,dose,outcome\n1,2,ill\n1,two,ill\n", LABELS, "finite number in column 'dose', got 'two' on line 3"),
        ("age,dose,outcome\n,2,ill\n", LABELS, "finite number in column 'age', got nothing on line 2"),
        ("age,dose,outcome\n1,inf,ill\n", LABELS, "finite number in column 'dose', got 'inf' on line 2"),
        (
            "age,dose,outcome\n1,2,ill\n\n1,2,dead\n",
            LABELS,
            r"one of the labels \(well, ill\) in column 'outcome', got 'dead' on line 4; correct the label or remove",
        ),
        ("age,dose,outcome\n1,2,\n", LABELS, "expected a label in column 'outcome', got none on line 2"),
        ("age,dose,outcome\n1,2,3\n", LABELS._replace(labels=("0", "1")), r"labels \(0, 1\) .*got '3' on line 2"),
        ("age,dose,outcome\n1,2,3\n", LABELS._replace(labels=()), "one of the labels"),
        ("age,dose,outcome\n1,2,high\n", REAL, "finite number in column 'outcome', got 'high' on line 2"),
        ("age,dose,outcome\n", LABELS, "expected rows and feature columns, got 0 rows"),
        ("", LABELS, "header line with column names, got an empty file"),
        ("age,dose,outcome\n1,2\n", LABELS, "expected 3 values, as in the header, got 2 on line 2"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, text: str, expectation: Expectation, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_rows(write(tmp_path, text), expectation)
    assert str(caught.value).startswith("clinic7.csv: expected ")
    assert str(tmp_path) not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_many_labels_are_not_all_listed(tmp_path: Path) -> None:
    expectation = LABELS._replace(labels=tuple(map(str, range(30))))
    with pytest.raises(InputError, match=r"labels \(0, 1, 2, .*, 9 and 20 more\) .*got '-1' on line 2"):
        load_rows(write(tmp_path, "age,dose,outcome\n1,2,-1\n"), expectation)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"age": [1, 2], "dose": [1.0, None], "outcome": ["ill", "well"]}, "column 'dose', got nothing on row 1"),
        (
            {"age": [1, 2], "dose": [1.0, 2.0], "outcome": ["ill", None]},
            "a label in column 'outcome', got none on row 1",
        ),
        ({"age": [1, 2], "dose": [[1], [2]], "outcome": ["ill", "well"]}, "numbers, booleans or text in column 'dose'"),
        ({"age": [1, 2], "outcome": ["ill", "well"]}, "expected the columns dose, which are missing"),
        ({"age": [1, 2], "dose": [1, 2], "outcome": [True, False]}, r"labels \(well, ill\) .*got 'True' on row 0"),
    ],
)
def test_what_does_not_fit_in_a_parquet_file(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_rows(parquet(tmp_path, **columns), LABELS)


def test_an_npz_without_the_target(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"clinic7.npz: expected arrays x, outcome, got x, y; add outcome"):
        load_rows(npz(tmp_path, x=np.zeros((1, 2)), y=np.zeros(1)), LABELS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.csv", "expected a CSV, Parquet or NPZ file at none.csv, got no such file"),
        ("folder.csv", "expected a CSV, Parquet or NPZ file at folder.csv, got a folder"),
        ("notes.xlsx", "ends in .csv, .parquet or .npz, got notes.xlsx"),
        ("x" * 300 + ".csv", "expected a file that can be read, got x{300}.csv"),
        ("text.npz", "text.npz: expected an NPZ file"),
        ("text.parquet", "text.parquet: expected a valid Parquet file"),
    ],
)
def test_no_message_names_the_folder(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    for file in ("notes.xlsx", "text.npz", "text.parquet"):
        write(tmp_path, "text", file)
    with pytest.raises(InputError, match=message) as caught:
        load_rows(tmp_path / name, LABELS)
    assert str(tmp_path) not in str(caught.value)
    if name == "none.csv":  # at one's own desk the whole path helps
        with pytest.raises(InputError, match=str(tmp_path)):
            data.load("file", path=tmp_path / name)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_files_on_nodes_give_what_one_file_of_all_rows_gives(tmp_path: Path, task: str) -> None:
    generator = np.random.default_rng(3)
    x = np.column_stack([generator.normal(1e6, 3, size=60), generator.integers(0, 2, size=60)])
    outcome = np.array(["well", "ill"])[generator.integers(0, 2, size=60)] if task == "classification" else x[:, 0] ** 2
    whole = npz(tmp_path, x=x, outcome=outcome, feature_names=np.array(["age", "dose"]))
    one = data.load("file", path=whole, target="outcome", task=task, test_path=write_copy(whole))
    expectation = Expectation(one.feature_names, one.target_name, one.task, one.label_names)
    nodes = []
    for k in range(4):
        (tmp_path / str(k)).mkdir()
        part = parquet(tmp_path / str(k), age=x[k::4, 0], dose=x[k::4, 1].astype(bool), outcome=outcome[k::4])
        nodes.append(load_rows(part, expectation))
    targets = [rows.y if task == "regression" else None for rows in nodes]
    total = add(first_sums(rows.x, y) for rows, y in zip(nodes, targets, strict=True))
    mean = mean_from(total)
    second = add(second_sums(rows.x, y, mean) for rows, y in zip(nodes, targets, strict=True))
    scaling = scale_from(total, second)
    for k, rows in enumerate(nodes):
        got_x, got_y = scale_rows(rows.x, rows.y, scaling)
        np.testing.assert_allclose(got_x, one.train_x[k::4], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(got_y, one.train_y[k::4], rtol=1e-6, atol=1e-6)
        assert (got_x.dtype, got_y.dtype) == (one.train_x.dtype, one.train_y.dtype)


def write_copy(path: Path) -> Path:
    copy = path.with_name("test.npz")
    copy.write_bytes(path.read_bytes())
    return copy
