"""The user's own CSV and NPZ files, and what is said when something is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedstein import data
from fedstein.errors import InputError


def write(folder: Path, text: str, name: str = "my.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def table(rows: int = 40, label: str = "yn") -> str:
    lines = [f"{i + 0.25},{i * 2.5},{i % 2},site{i % 4},{label[i % len(label)]}" for i in range(rows)]
    return "\n".join(["a,b,flag,site,target", *lines]) + "\n"


def raw(dataset: data.Dataset, x: np.ndarray) -> np.ndarray:
    return np.rint((x * dataset.scale + dataset.mean) * 1000) / 1000


def test_csv_with_clients_and_string_labels(tmp_path: Path) -> None:
    got = data.load("file", path=write(tmp_path, table()), client="site")
    assert got.task == "classification"
    assert got.label_names == ("n", "y")
    assert got.feature_names == ("a", "b", "flag")
    assert (len(got.train_y), len(got.test_y)) == (32, 8)
    assert got.client_names == ("site0", "site1", "site2", "site3")
    a = raw(got, got.train_x)[:, 0] - 0.25
    assert got.client_of_row is not None
    assert np.array_equal(got.client_of_row, a % 4)
    assert np.array_equal(got.train_y, 1 - a % 2)
    assert sorted([*a, *(raw(got, got.test_x)[:, 0] - 0.25)]) == list(range(40))
    assert [len(shard) for shard in data.partition(got, "given", clients=None, seed=0)] == [8] * 4


def test_standardised_with_training_rows_and_binary_left_alone(tmp_path: Path) -> None:
    got = data.load("file", path=write(tmp_path, table()), client="site")
    np.testing.assert_allclose(got.train_x[:, :2].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(got.train_x[:, :2].std(axis=0), 1, atol=1e-6)
    assert (got.mean[2], got.scale[2]) == (0, 1)
    plain = data.load("file", path=tmp_path / "my.csv", client="site", standardize=False)
    assert not plain.mean.any()
    assert plain.train_x.max() > 40


def test_target_by_name_and_task_found(tmp_path: Path) -> None:
    path = write(tmp_path, "y,a\n" + "\n".join(f"{i * 0.37},{i}" for i in range(15)))
    got = data.load("file", path=path, target="y")
    assert got.task == "regression"
    assert got.classes == 0
    np.testing.assert_allclose([got.train_y.mean(), got.train_y.std()], [0, 1], atol=1e-6)
    back = got.test_y * got.target_scale + got.target_mean
    np.testing.assert_allclose(back, raw(got, got.test_x)[:, 0] * 0.37, atol=1e-5)
    with pytest.raises(
        InputError, match=r"'a' has 15 different integers, which could be labels or numbers; set data.task"
    ):
        data.load("file", path=path, target="a")
    assert data.load("file", path=path, target="a", task="classification").classes == 15
    assert data.load("file", model_task="regression", path=path, target="a").task == "regression"
    assert data.load("file", path=path, target="a", task="regression").task == "regression"


def test_integer_labels_sort_as_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "a,y\n" + "\n".join(f"{i}.5,{(10, 9, -1)[i % 3]}" for i in range(30)))
    assert data.load("file", path=path).label_names == ("-1", "9", "10")


def test_split_is_fixed_and_stratified(tmp_path: Path) -> None:
    path = write(tmp_path, "a,y\n" + "\n".join(f"{i}.5,{int(i % 10 == 0)}" for i in range(100)))
    one, two = data.load("file", path=path), data.load("file", path=path)
    assert np.array_equal(one.test_x, two.test_x)
    assert np.bincount(one.test_y).tolist() == [18, 2]
    assert len(data.load("file", path=path, test_fraction=0.5).test_y) == 50


def test_separate_test_file(tmp_path: Path) -> None:
    train = write(tmp_path, "a,b,y\n1,2,no\n3,4,yes\n5,6,no\n")
    test = write(tmp_path, "y,extra,b,a\nyes,?,6,5\n", "test.csv")
    got = data.load("file", path=train, test_path=test)
    assert len(got.train_y) == 3
    assert got.test_y.tolist() == [1]
    assert raw(got, got.test_x).tolist() == [[5, 6]]
    with pytest.raises(InputError, match=r"labels \(no, yes\) in column 'y', got 'maybe' on line 2; .*training file"):
        data.load("file", path=train, test_path=write(tmp_path, "a,b,y\n1,2,maybe\n", "odd.csv"))
    with pytest.raises(InputError, match="the columns b, which are missing"):
        data.load("file", path=train, test_path=write(tmp_path, "a,y\n1,no\n", "short.csv"))
    with pytest.raises(InputError, match="expected a column 'y'"):
        data.load("file", path=train, test_path=write(tmp_path, "a,b\n1,2\n", "bare.csv"))


def test_semicolons_byte_order_mark_and_quotes(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_bytes(b'\xef\xbb\xbf"a";"y"\r\n' + b"".join(b'%d;"c%d"\r\n' % (i, i % 2) for i in range(10)))
    assert data.load("file", path=path).feature_names == ("a",)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,y\n1,0\nred,1\n", {}, "column 'a', got 'red' on line 3"),
        ("a,y\n1,0\n\n,1\n", {}, "column 'a', got nothing on line 4"),
        ("a,y\n1,0\nnan,1\n", {}, "column 'a', got 'nan' on line 3"),
        ("a,y\n1,0\n1e40,1\n", {}, "column 'a', got '1e40' on line 3"),
        ("a,y\n1,0\n2,\n", {}, "expected a label in column 'y', got none on line 3"),
        ("a,y\n1,0\n2\n", {}, "expected 2 values, as in the header, got 1 on line 3"),
        ("a,y\n1,x\n2,x\n3,x\n", {}, "at least two labels"),
        ("a,y\n1,0\n2,1\n", {"target": "z"}, "expected a column 'z' .*got columns a, y"),
        ("a,y\n1,0\n2,1\n", {"client": "z"}, r"expected a column 'z' \(data.client\)"),
        ("a,y\n1,0\n2,1\n", {"client": "y", "target": "y"}, "different columns"),
        ("a,c,y\n1,p,0\n2,,1\n", {"client": "c"}, "expected a client in column 'c', got nothing on line 3"),
        ("a,y\n1,x\n2,3\n3,4\n", {"task": "regression"}, "column 'y', got 'x' on line 2"),
        ("a,y\n1,0\n2,1\n", {"task": "ranking"}, "got 'ranking'"),
        ("a,y\n1,0\n2,1\n", {"test_fraction": 1.0}, "test_fraction between 0 and 1, got 1.0"),
        ("a,y\n", {}, "got 0 rows"),
        ("y\n1\n", {}, "0 features"),
        ("", {}, "empty file"),
        ("1,2\n3,4\n", {}, "header line with column names, got numbers"),
        ("a,a,y\n1,2,0\n", {}, "got a twice"),
        (",a,y\n1,2,0\n", {}, "got none for column 1"),
        ("a,y\n1,0\n", {}, "got 0 and 1"),
        ("a,y\n" + "\n".join(f"{i},v{i}" for i in range(60)), {}, "60 different values"),
    ],
)
def test_csv_errors_are_one_clear_line(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        data.load("file", path=write(tmp_path, text), **options)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        data.load("file", path=tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"data files .* in the folder .*, got none"):
        data.load("file", path=tmp_path)
    with pytest.raises(InputError, match=r"ends in .csv, .parquet or .npz"):
        data.load("file", path=write(tmp_path, "x", "data.xlsx"))
    (tmp_path / "latin.csv").write_bytes(b"a,y\n1,\xe9\n")
    with pytest.raises(InputError, match="UTF-8"):
        data.load("file", path=tmp_path / "latin.csv")


def npz(folder: Path, **arrays: Any) -> Path:
    path = folder / "my.npz"
    np.savez(path, **arrays)
    return path


def test_npz(tmp_path: Path) -> None:
    x = np.arange(60.0).reshape(30, 2) + 0.5
    path = npz(tmp_path, x=x, y=np.arange(30) % 3, client=np.arange(30) % 2, feature_names=np.array(["p", "q"]))
    got = data.load("file", path=path)
    assert got.feature_names == ("p", "q")
    assert got.label_names == ("0", "1", "2")
    assert got.client_names == ("0", "1")
    assert sorted(raw(got, np.concatenate([got.train_x, got.test_x]))[:, 0]) == x[:, 0].tolist()
    real = data.load("file", path=npz(tmp_path, x=x, y=x[:, 0] / 7))
    assert real.task == "regression"
    assert real.feature_names == ("x0", "x1")
    assert real.client_of_row is None


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros(3)}, "expected arrays x, y, got y; add x"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(4)}, "expected 3 values in y"),
        ({"x": np.zeros(3), "y": np.zeros(3)}, "rows x features"),
        ({"x": np.array([["a"], ["b"]]), "y": np.zeros(2)}, "rows x features"),
        ({"x": np.array([[0.0], [np.nan]]), "y": np.arange(2)}, "column 'x0', got 'nan' on row 1"),
        ({"x": np.array([[0.0]], object), "y": np.zeros(1)}, "without Python objects"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3), "feature_names": np.array(["a"])}, "2 values in feature_names"),
    ],
)
def test_npz_errors(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        data.load("file", path=npz(tmp_path, **arrays))


def test_damaged_npz(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a zip archive"):
        data.load("file", path=write(tmp_path, "text", "my.npz"))


def test_load_features_picks_columns_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, "id,b,a\nrow1,2,1\nrow2,4,3\n")
    assert data.load_features(path, ["a", "b"]).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match="the columns c, d, which are missing; add them"):
        data.load_features(path, ["a", "c", "d"])
    with pytest.raises(InputError, match="column 'id', got 'row1' on line 2"):
        data.load_features(path, ["id"])


def test_load_features_from_npz(tmp_path: Path) -> None:
    x = np.arange(6.0).reshape(3, 2)
    assert data.load_features(npz(tmp_path, x=x), ["p", "q"]).tolist() == x.tolist()
    named = npz(tmp_path, x=x, feature_names=np.array(["q", "p"]))
    assert data.load_features(named, ["p"]).tolist() == x[:, 1:].tolist()
    with pytest.raises(InputError, match="the columns r"):
        data.load_features(named, ["r", "p"])
