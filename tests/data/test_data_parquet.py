"""Parquet files: the same columns as from CSV and NPZ, and what is said when something is wrong with them."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedstein import data
from fedstein.errors import InputError

ROWS = 40
A = np.random.default_rng(0).normal(size=ROWS)
SMALL = (np.arange(ROWS) % 7).astype(np.int16)
FLAG = np.arange(ROWS) % 3 == 0
SITE = [f"site{i % 4}" for i in range(ROWS)]
LABEL = ["yes" if i % 2 else "no" for i in range(ROWS)]


def save(folder: Path, columns: dict[str, Any], name: str = "my.parquet") -> Path:
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def same(one: data.Dataset, two: data.Dataset) -> None:
    for field in ("train_x", "train_y", "test_x", "test_y", "mean", "scale", "client_of_row"):
        first, second = getattr(one, field), getattr(two, field)
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
    for field in ("task", "classes", "feature_names", "label_names", "client_names", "target_mean", "target_scale"):
        assert getattr(one, field) == getattr(two, field)


@pytest.mark.parametrize("target", [LABEL, [i % 3 for i in range(ROWS)], list(A * 7)], ids=["text", "codes", "real"])
def test_csv_npz_and_parquet_give_the_same_dataset(tmp_path: Path, target: list[Any]) -> None:
    lines = [f"{a!r},{s},{int(f)},{c},{t}" for a, s, f, c, t in zip(A.tolist(), SMALL, FLAG, SITE, target, strict=True)]
    (tmp_path / "my.csv").write_text("\n".join(["a,small,flag,client,y", *lines]))
    x = np.column_stack([A, SMALL, FLAG])
    names = np.array(["a", "small", "flag"])
    np.savez(tmp_path / "my.npz", x=x, y=np.array(target), client=np.array(SITE), feature_names=names)
    path = save(tmp_path, {"a": A, "small": SMALL, "flag": FLAG, "client": SITE, "y": target})
    csv, npz, parquet = (
        data.load("file", path=tmp_path / name, client="client") for name in ("my.csv", "my.npz", path.name)
    )
    same(csv, parquet)
    same(npz, parquet)
    assert parquet.target_name == "y"
    test = data.load("file", path=path, client="client", test_path=tmp_path / "my.csv")
    assert len(test.test_y) == ROWS


def test_other_ways_to_store_numbers_and_text(tmp_path: Path) -> None:
    columns = {
        "half": pa.array(np.arange(ROWS, dtype=np.float16)),
        "unsigned": pa.array(np.arange(ROWS), pa.uint64()),
        "decimal": pa.array([Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(10, 2)),
        "few": pa.array(np.arange(ROWS) % 2 + 5).dictionary_encode(),
        "digits": pa.array([f" {i}.5" for i in range(ROWS)], pa.large_string()),
        "with.dot": pa.array(np.arange(ROWS), pa.int8()),
        "y": pa.array(LABEL).dictionary_encode(),
    }
    path = save(tmp_path, columns, "my.pq")
    count = np.arange(ROWS)
    expected = np.column_stack([count, count, count / 4, count % 2 + 5, count + 0.5, count])
    np.testing.assert_array_equal(data.load_features(path, list(columns)[:-1]), expected)
    found = data.load("file", path=path, features=list(columns)[:-1])
    assert found.label_names == ("no", "yes")
    assert found.feature_names == ("half", "unsigned", "decimal", "few", "digits", "with.dot")


def test_several_row_groups_and_booleans_as_target(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": A, "y": FLAG}), tmp_path / "my.parquet", row_group_size=7)
    got = data.load("file", path=tmp_path / "my.parquet")
    assert got.label_names == ("False", "True")
    np.testing.assert_array_equal(data.load_features(tmp_path / "my.parquet", ["a"])[:, 0], A)


def test_columns_that_are_not_asked_for_may_hold_anything(tmp_path: Path) -> None:
    columns = {
        "when": pa.array([1, 2], pa.timestamp("s")),
        "a": [{"b": 1}, {"b": 2}],
        "a.b": [3.0, 4.0],
        "gaps": [1, None],
    }
    path = save(tmp_path, columns)
    assert data.load_features(path, ["a.b"]).tolist() == [[3], [4]]
    train = save(tmp_path, {"a.b": [1.0, 2.0, 3.0], "y": ["p", "q", "p"]}, "train.parquet")
    test = save(tmp_path, {"y": ["q", "q"], **columns}, "test.parquet")
    assert data.load("file", path=train, test_path=test).test_y.tolist() == [1, 1]
    with pytest.raises(InputError, match=r"my.parquet: expected the columns x, which are missing; add them"):
        data.load_features(path, ["x"])


def test_row_numbers_that_pandas_saved_are_no_column(tmp_path: Path) -> None:
    path = save(tmp_path, {"a": A, "y": LABEL, "__index_level_0__": np.arange(ROWS)})
    got = data.load("file", path=path)
    assert (got.feature_names, got.target_name) == (("a",), "y")


Y = ["p", "q"]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": [1.0, None], "y": Y}, {}, "expected a value in column 'a', got nothing on row 1"),
        ({"a": [None, 2], "y": Y}, {}, "column 'a', got nothing on row 0"),
        ({"a": [True, None], "y": Y}, {}, "column 'a', got nothing on row 1"),
        ({"a": pa.nulls(2), "y": Y}, {}, "column 'a', got nothing on row 0"),
        ({"a": [1.0, float("nan")], "y": Y}, {}, "column 'a', got 'nan' on row 1"),
        ({"a": ["1", "red"], "y": Y}, {}, "column 'a', got 'red' on row 1"),
        ({"a": [1, 2], "y": ["p", None]}, {}, "expected a label in column 'y', got none on row 1"),
        ({"a": [1, 2], "y": [1, None]}, {}, "expected a label in column 'y', got none on row 1"),
        ({"a": [1, 2], "y": [1.5, None]}, {"task": "regression"}, "column 'y', got nothing on row 1"),
        ({"a": [1, 2], "c": ["k", None], "y": Y}, {"client": "c"}, "a client in column 'c', got nothing on row 1"),
        ({"a": [[1], [2]], "y": Y}, {}, "numbers, booleans or text in column 'a', got list<.*>; convert the column"),
        ({"a": [{"b": 1}, {"b": 2}], "y": Y}, {}, "text in column 'a', got struct<b: int64>"),
        ({"a": pa.array([1, 2], pa.timestamp("ms")), "y": Y}, {}, r"text in column 'a', got timestamp\[ms\]"),
        ({"a": [b"1", b"2"], "y": Y}, {}, "text in column 'a', got binary"),
        ({"a": [1, 2], "y": [[1], [2]]}, {}, "text in column 'y'"),
        ({"a": [1, 2], "y": Y}, {"target": "z"}, r"expected a column 'z' \(data.target\), got columns a, y"),
        ({"a": pa.array([], pa.int8()), "y": pa.array([], pa.string())}, {}, "got 0 rows and 1 features"),
        ({"y": Y}, {}, "got 0 features besides"),
        ({}, {}, "got a Parquet file without any"),
        ({"": [1, 2], "y": Y}, {}, "got none for column 1"),
    ],
)
def test_errors_are_one_clear_line(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        data.load("file", path=save(tmp_path, columns), **options)
    assert str(caught.value).startswith("my.parquet: expected ")
    assert "\n" not in str(caught.value)


def test_a_name_twice(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "y"])
    pq.write_table(table, tmp_path / "my.parquet")
    with pytest.raises(InputError, match="different column names, got a twice"):
        data.load("file", path=tmp_path / "my.parquet")


def test_numbers_may_be_names(tmp_path: Path) -> None:
    path = save(tmp_path, {"10": A, "20": LABEL})
    assert data.load("file", path=path).feature_names == ("10",)


@pytest.mark.parametrize("content", [b"", b"text", b"PAR1" + bytes(40) + b"PAR1"])
def test_files_that_are_no_parquet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "my.parquet").write_bytes(content)
    with pytest.raises(InputError, match=r"^my.parquet: expected a valid Parquet file, got one that .*save it again$"):
        data.load("file", path=tmp_path / "my.parquet")


def test_damage_anywhere_is_an_input_error_or_harmless(tmp_path: Path) -> None:
    content = save(tmp_path, {"a": A, "y": LABEL}).read_bytes()
    refused = 0
    for place in range(4, len(content), 9):
        for damaged in (content[:place], content[:place] + b"\xff\xff" + content[place + 2 :]):
            (tmp_path / "hurt.parquet").write_bytes(damaged)
            try:
                data.load("file", path=tmp_path / "hurt.parquet")
            except InputError as error:
                refused += 1
                assert str(error).isprintable()  # noqa: PT017 - most places are refused, some do no harm
    assert refused > len(content) / 9  # a file that was cut off always is


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, {"a": A, "y": LABEL})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"^my.parquet: expected pyarrow .*pip install 'fedstein\[parquet\]'"):
        data.load("file", path=path)


def test_the_file_is_named_where_a_dataset_is_expected() -> None:
    with pytest.raises(InputError, match=r'data.name = "file" and data.path = "my.parquet"'):
        data.load("my.parquet")
    with pytest.raises(InputError, match="CSV, Parquet or NPZ file"):
        data.load("file")
