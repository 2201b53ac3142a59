"""Categories, missing values and identifiers: how columns become numbers, from counts and sums alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedstein.data.column_counts import add_counts, count_columns
from fedstein.data.encoding import Coding, Encoding, choose_encoding, known_categories, plain_encoding
from fedstein.data.table import Column, Table, same_columns, table_of
from fedstein.errors import InputError


def clinic(name: str = "a.csv", **columns: Column) -> Table:
    rows = len(next(iter(columns.values())))
    return table_of(name, {**columns, "y": ["0"] * rows}, target="y")


def chosen(tables: Sequence[Table], named: Sequence[str] = (), categories: Any = None, **options: Any) -> Encoding:
    known = known_categories(categories)
    values = options.get("missing") == "mode"
    counts = add_counts([count_columns(table, categories=known, values=values) for table in tables])
    return choose_encoding(counts, named=named, categories=known, **options)


NORTH = clinic("north.csv", age=["61", "55", "70"], sex=["f", "m", "f"])
SOUTH = clinic("south.csv", sex=["m", "x", "m"], age=np.array([40, 41, 40]))


def test_categories_are_those_of_all_clients_and_columns_are_found_by_name() -> None:
    assert same_columns([NORTH, SOUTH]) == ("age", "sex")
    encoding = chosen([NORTH, SOUTH])
    assert encoding.feature_names == ("age", "sex=f", "sex=m", "sex=x")
    assert encoding.categories == {"sex": ["f", "m", "x"]}
    assert encoding.encode(NORTH).tolist() == [[61, 1, 0, 0], [55, 0, 1, 0], [70, 1, 0, 0]]
    assert encoding.encode(SOUTH).tolist() == [[40, 0, 1, 0], [41, 0, 0, 1], [40, 0, 1, 0]]
    assert Encoding.from_json(encoding.to_json()) == encoding


def test_reference_coding_leaves_the_first_category_out() -> None:
    encoding = chosen([NORTH, SOUTH], coding="reference", categories={"sex": ["m", "f", "x"]})
    assert encoding.feature_names == ("age", "sex=f", "sex=x")
    assert encoding.encode(SOUTH)[:, 1:].tolist() == [[0, 0], [0, 1], [0, 0]]


def test_only_names_counts_and_sums_leave_a_client() -> None:
    counts = count_columns(NORTH)
    assert counts["age"]._asdict() == {
        "rows": 3,
        "missing": 0,
        "numbers": 3,
        "integers": 3,
        "total": 186.0,
        "most": 3,
        "different": True,
        "categorical": False,
        "many": False,
        "names": {},
    }
    assert counts["sex"].names == {"f": 2, "m": 1}
    text = clinic(note=[f"the patient said {i}" for i in range(60)])
    assert count_columns(text)["note"].names == {}


def test_numbers_are_categories_where_the_user_says_so() -> None:
    table = clinic(cp=["1", "3.0", "1", "2"])
    assert chosen([table], categories=["cp"]).feature_names == ("cp=1", "cp=2", "cp=3")
    listed = chosen([table], categories={"cp": [1, 2, 3, 4]})
    assert listed.encode(table).tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    typed = table_of("a DataFrame", {"cp": np.array([1, 2, 1]), "y": ["0"] * 3}, categorical=frozenset(["cp"]))
    assert chosen([typed]).feature_names == ("cp=1", "cp=2")


def test_true_and_false_are_numbers() -> None:
    table = clinic(smoker=["True", "false", "", "TRUE"])
    encoding = chosen([table], missing="mode")
    assert encoding.feature_names == ("smoker",)
    assert encoding.encode(table).ravel().tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("mean", [[1, 1, 0], [3, 0, 1], [3, 1, 0], [5, 1, 0]]),
        ("mode", [[1, 1, 0], [1, 0, 1], [3, 1, 0], [5, 1, 0]]),
        ("indicator", [[1, 0, 1, 0, 0], [3, 1, 0, 1, 0], [3, 0, 1, 0, 0], [5, 0, 0, 0, 1]]),
    ],
)
def test_missing_values_are_filled_from_all_clients(missing: str, expected: list[list[float]]) -> None:
    one = clinic(dose=["1", "?", "3", "5"], sex=["f", "m", "f", "NA"])
    other = clinic(dose=np.array([np.nan, np.nan]), sex=["f", "f"])
    encoding = chosen([one, other], missing=missing)
    assert encoding.encode(one).tolist() == expected
    names = encoding.feature_names
    assert [name for name in names if "missing" in name] == (
        ["dose missing", "sex missing"] if missing == "indicator" else []
    )


def test_the_mean_is_that_of_the_training_rows() -> None:
    table = clinic(dose=["1", "", "3", "100"])
    counts, training = count_columns(table), count_columns(table, rows=np.array([0, 1, 2]))
    encoding = choose_encoding(counts, training=training, missing="mean")
    assert encoding.columns == (Coding("dose", fill=2.0),)


def test_a_name_is_not_a_missing_value() -> None:
    table = clinic(drug=["None", "a", "None"])
    assert chosen([table], missing="mode").encode(table).tolist() == [[1, 0], [0, 1], [1, 0]]
    listed = clinic(drug=["NA", "a", "NA"])
    assert chosen([listed], categories={"drug": ["NA", "a"]}).encode(listed).tolist() == [[1, 0], [0, 1], [1, 0]]
    numbers = clinic(dose=["1", "None", "3"])  # as Python writes a number that is missing
    assert chosen([numbers], missing="mean").encode(numbers).ravel().tolist() == [1, 2, 3]


IDS = [str(100 + i) for i in range(30)]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"id": IDS}, {}, r"'id' has an integer that is different in every row.*data.drop = \[\"id\"\].*data.features"),
        ({"id": [f"p{i}" for i in range(30)]}, {}, "'id' has text that is different in every row"),
        ({"a": ["x", "", "y"]}, {}, "column 'a' has 1 missing value in 3 rows"),
        ({"a": ["", "NA", "?"]}, {"missing": "mean"}, "column 'a' has no value in any row"),
        ({"a": ["x", "x"]}, {}, r"only one category \('x'\)"),
        ({"a": [f"t{i % 60}" for i in range(99)]}, {}, "more than 50 different values, too many for categories"),
        ({"a": ["2024-05-31", "2024-06-01"]}, {}, "got a date ('2024-05-31' on row 0)"),
        ({"a": ["31.12.1999 23:59", "1.1.2000 00:00"]}, {}, "got a date"),
        ({"a": ["1", "x"]}, {}, "expected a number in column 'a', got 'x' on row 1"),
        ({"a": ["x", "x ", "y"]}, {}, "got 'x' and 'x ' (row 1), which differ only in blanks"),
        ({"a": ["1", "2"]}, {"categories": {"b": ["x", "y"]}}, "data.categories: expected names of feature columns"),
        ({"a": ["1", "2"]}, {"categories": {"a": ["1", "1.0"]}}, "got 1 twice"),
        ({"a": ["1", "2"]}, {"categories": {"a": ["1"]}}, "at least two categories"),
        ({"a": ["1", "inf"]}, {}, "expected a finite number in column 'a', got 'inf' on row 1"),
        ({"a": [*map(str, np.arange(60) / 7), ""]}, {"missing": "mode"}, "more than 50 different numbers"),
        ({"a": ["1", ""]}, {"missing": "zero"}, "expected data.missing to be one of mean, mode, indicator, got 'zero'"),
    ],
)
def test_refusals_are_one_line(columns: dict[str, Column], options: dict[str, Any], message: str) -> None:
    pattern = message if "\\" in message or ".*" in message else None
    with pytest.raises(InputError, match=pattern) as caught:
        chosen([clinic(**columns)], **options)
    assert pattern or message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_identifier_that_starts_anew_in_every_file_is_one_too() -> None:
    with pytest.raises(InputError, match="'id' has an integer that is different in every row"):
        chosen([clinic(id=IDS), clinic(id=IDS)])
    assert chosen([clinic(id=IDS), clinic(id=IDS)], named=["id"]).feature_names == ("id",)
    assert chosen([clinic(id=IDS), clinic(id=["100", "100"])]).feature_names == ("id",)
    assert chosen([clinic(age=IDS[:8])]).feature_names == ("age",)  # too few rows to tell


def test_text_at_one_client_and_numbers_at_another() -> None:
    with pytest.raises(InputError, match="'a' has categories in some files and numbers in others"):
        chosen([clinic(a=["x", "y"]), clinic(a=["1", "2"])])


def test_rows_that_come_later() -> None:
    encoding = chosen([NORTH, SOUTH])
    with pytest.raises(
        InputError, match=r"new.csv: expected one of the categories \(f, m, x\) in column 'sex', got 'q'"
    ):
        encoding.encode(table_of("new.csv", {"sex": ["f", "q"], "age": ["1", "2"]}, target=""))
    with pytest.raises(InputError, match=r"new.csv: expected the columns age, which are missing"):
        encoding.encode(table_of("new.csv", {"sex": ["f"], "weight": ["1"]}, target=""))
    with pytest.raises(InputError, match="expected a value in column 'age', got nothing on row 0"):
        encoding.encode(table_of("new.csv", {"sex": ["f"], "age": [""]}, target=""))
    with pytest.raises(InputError, match="expected a finite number in column 'age', got 'old' on row 0"):
        encoding.encode(table_of("new.csv", {"sex": ["f"], "age": ["old"]}, target=""))


def test_plain_numbers_stay_as_they_are() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(20, 3))
    table = table_of("a.csv", {f"c{i}": [repr(v) for v in x[:, i].tolist()] for i in range(3)}, target="")
    assert np.array_equal(plain_encoding(("c0", "c1", "c2")).encode(table), x)
