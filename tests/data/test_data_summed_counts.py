"""Counts of columns as arrays that add up: the same totals as from plain counts, and names that nobody listed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedstein.data.column_counts import MOST_CATEGORIES, add_counts, count_columns
from fedstein.data.encoding import choose_encoding, known_categories
from fedstein.data.name_sketch import Counted, read_table, write_table
from fedstein.data.read_files import read_table as read_rows
from fedstein.data.summed_counts import columns_with_names, first_counts, name_table, total_counts
from fedstein.errors import FedsteinError, InputError


def test_as_many_names_as_a_client_may_have_come_out_of_a_sum_of_tables() -> None:
    draw = np.random.default_rng(0)
    names = [f"Größe {i}" for i in range(MOST_CATEGORIES)]
    clients = []
    for _ in range(5):
        rows = draw.integers(0, 4, (2, len(names)))
        clients.append([(c, n, int(rows[c, i])) for c in (0, 1) for i, n in enumerate(names) if rows[c, i]])
    tables = [write_table([Counted(c, n, r, r - 1) for c, n, r in part], 2, "salt") for part in clients]
    truth: dict[tuple[int, str], list[int]] = {}
    for c, n, r in (entry for part in clients for entry in part):
        both = truth.setdefault((c, n), [0, 0])
        truth[c, n] = [both[0] + r, both[1] + r - 1]
    found = read_table(np.sum(tables, axis=0), "salt")
    assert found is not None
    assert {(each.column, each.name): [each.rows, each.training] for each in found} == truth


def test_tables_that_cannot_be_read_are_noticed() -> None:
    many = write_table([Counted(0, f"n{i}", 1, 1) for i in range(400)], 1, "s")
    assert read_table(many, "s") is None
    one = write_table([Counted(0, "a", 3, 2)], 1, "s")
    assert read_table(one, "s") == [Counted(0, "a", 3, 2)]
    assert read_table(one, "another salt") is None
    one[0, 0, 1] += 1
    assert read_table(one, "s") is None
    with pytest.raises(InputError, match="1 to 48 bytes, got one of 49"):
        write_table([Counted(0, "x" * 49, 1, 1)], 1, "s")


@pytest.mark.parametrize("missing", ["mean", "mode"])
@pytest.mark.parametrize("categories", [None, {"sex": ["f", "m", "x"], "ward": ["1", "2", "3"]}])
def test_the_encoding_is_that_of_plain_counts(tmp_path: Path, missing: str, categories: dict | None) -> None:
    known, parts = known_categories(categories), []
    for client, rows in enumerate(("1,f,1,.5\n2,m,2,\n,f,2,.5\n", "4,x,3,.25\n4,x,3,.5\n5,,1,.75\n")):
        path = tmp_path / f"{client}.csv"
        path.write_text("age,sex,ward,dose,ill\n" + "".join(f"{line},{i % 2}\n" for i, line in enumerate(rows.split())))
        table = read_rows(path, target="ill")
        kept = np.array([0, 2])
        every = count_columns(table, categories=known)
        parts.append((every, count_columns(table, categories=known, rows=kept, values=missing == "mode")))
    names = list(parts[0][0])
    first = [first_counts(*part) for part in parts]
    total = {name: np.sum([each[name] for each in first], axis=0) for name in first[0]}
    places = columns_with_names(total, names, known, missing == "mode")
    table = np.sum([name_table(*part, places, known, "s") for part in parts], axis=0)
    summed, plain = total_counts(total, names, table, "s"), [add_counts([p[i] for p in parts]) for i in (0, 1)]
    chosen = [
        choose_encoding(e, training=t, named=names, categories=known, missing=missing) for e, t in (summed, plain)
    ]
    assert chosen[0] == chosen[1]
    assert dict(summed[1]["sex"].names) == {"f": 2, "x": 1}
    table[0, 0, 0] += 1
    with pytest.raises(FedsteinError, match="cannot be read from the secure sum"):
        total_counts(total, names, table, "s")


def test_text_at_one_client_and_numbers_at_another_are_noticed_in_the_sum() -> None:
    total = {"every": np.array([[4.0, 0, 2, 2, 3, 0, 0, 1, 1]]), "training": np.zeros((1, 7))}
    with pytest.raises(InputError, match="'age' has text at 1 clients and numbers at 1"):
        columns_with_names(total, ["age"], {}, False)
    assert columns_with_names(total, ["age"], {"age": ()}, False) == [0]
