"""What people pass by mistake to ``fit``, to a posterior and to the estimators: one sentence, and no wrong answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox
import jax
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

import fedstein
from fedstein.data import load
from fedstein.errors import InputError
from fedstein.sklearn import FederatedClassifier

X = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(int)
NETWORK: Any = equinox.nn.MLP(2, "scalar", 4, 1, key=jax.random.key(0))
MASKED = np.ma.masked_array(X, mask=X > 1)
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, "site": ["north", "south"] * 20})


def fit(clients: Any, **options: Any) -> Any:
    return fedstein.fit("blr", clients, rounds=1, sites__expand="mean", **options)


def fit_of(model: Any) -> Any:
    return fedstein.fit(model, [(X, Y)] * 2, rounds=1)


def fit_frame(selection__barred: Any = None, **columns: Any) -> Any:
    options = {} if selection__barred is None else {"selection__barred": selection__barred}
    return fit(FRAME.assign(**columns), client="site", target="y", **options)


DAYS = np.repeat([20240131, 20240201, 20240229, 20241231], 10)
STAMPS = pd.date_range("2024-01-31", periods=40)

PASSED: dict[str, tuple[Callable[[], Any], str]] = {
    "masked cells": (lambda: fit([(MASKED, Y)] * 2), r"client 0: x: expected a value in every cell, got \d+ masked"),
    "masked labels": (lambda: fit([(X, np.ma.masked_array(Y, mask=Y > 0))] * 2), r"client 0: y: expected a value"),
    "a sparse matrix": (lambda: fit([(csr_matrix(X), Y)] * 2), r"got a sparse matrix; pass x\.toarray\(\)"),
    "a client without a name": (lambda: fit({None: (X, Y), "south": (X, Y)}), "expected a name for every client"),
    "a client called NaN": (lambda: fit({float("nan"): (X, Y), "south": (X, Y)}), "expected a name for every client"),
    "targets": (lambda: fit(FRAME, client="site", target=["y"]), r"target: expected the name of one column, got \['y'"),
    "clients": (lambda: fit(FRAME, client=3, target="y"), "client: expected the name of one column, got 3"),
    "no function": (lambda: fit([(X, Y)] * 2, on_round=3), "on_round: expected a function"),
    "a NumPyro function": (lambda: fit_of(lambda x, y=None: None), r"got <lambda>; pass .*numpyro"),
    "a network": (lambda: fit_of(NETWORK), r"got MLP; pass fedstein\.models\.from_equinox\("),
    "a class": (lambda: fit_of(dict), "got dict; pass an object, not a class"),
    "settings": (lambda: fit([(X, Y)] * 2, settings=[1]), r"settings: expected a dict of sections, got \[1\]"),
    "a callback": (lambda: fit([(X, Y)] * 2, callbacks=3), "callbacks: expected a list of callbacks, got int"),
    "a class of callbacks": (lambda: fit([(X, Y)] * 2, callbacks=[fedstein.Callback]), "the class Callback; call it"),
    "arrays in cells": (lambda: fit_frame(a=[X[0]] * 40), "column 'a', got ndarray in row 0; make a column of each"),
    "lists in cells": (lambda: fit_frame(a=[[1, 2]] * 40), "column 'a', got list in row 0"),
    "times": (lambda: fit_frame(a=["08:30", "09:30"] * 20), "'a', got a date .'08:30'"),
    "barred": (lambda: fit_frame(selection__barred=["east"]), r"no client east: expected .* north \(0\), south"),
    "a number as a folder": (lambda: fit([(X, Y)] * 2, out=3), "expected the path of a folder, .* got 3"),
    "dates as integers": (lambda: fit_frame(a=DAYS), r"'a' looks like dates written as integers .20240131 on row 0"),
    "targets that are dates": (lambda: fit_frame(y=STAMPS), r"client 'north': .* got a date or time .2024-01-31T"),
    "targets as integer dates": (lambda: fit_frame(y=DAYS), r"got a date or time .20240131.; turn it into a number"),
    "targets as text of dates": (lambda: fit_frame(y=STAMPS.astype(str)), r"got a date or time .2024-01-31."),
    "targets of one class": (lambda: fit_frame(y="ill"), "at least two classes, got 'ill' in every row"),
    "one name in place of a list": (
        lambda: fit(FRAME, client="site", target="y", data__drop="a"),
        "data.drop: .* list",
    ),
    "numbers as names": (
        lambda: fit(FRAME, client="site", target="y", data__features=[3]),
        "names of columns, as text",
    ),
    "load": (lambda: fedstein.load(3), "expected the path of a folder"),  # type: ignore[arg-type]
    "resume": (lambda: fedstein.resume(None), "expected the path of a folder"),  # type: ignore[arg-type]
    "bytes": (lambda: fedstein.load(b"run"), "expected the path of a folder"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", PASSED)
def test_it_is_refused_in_a_sentence(mistake: str) -> None:
    call, said = PASSED[mistake]
    with pytest.raises(InputError, match=said) as told:
        call()
    assert "\n" not in str(told.value)


def test_the_target_is_not_guessed_if_the_last_column_is_a_feature(tmp_path: Path) -> None:
    file = tmp_path / "patients.csv"
    FRAME[["site", "a", "b", "y"]].to_csv(file, index=False)
    with pytest.raises(InputError, match=r"data\.features names 'y', the last column.* set data\.target, .* to 'b'"):
        load("file", path=str(file), features=["y"])
    known = load("file", path=str(file), features=["a", "b", "y"], task="classification")  # one column is left
    assert known.target_name == "site"


def test_a_masked_array_without_masked_cells_is_an_array(fitted: Any) -> None:
    again = fit([(np.ma.masked_array(X), Y), (X + 1, Y)])
    np.testing.assert_array_equal(again.particles, fitted.particles)


@pytest.fixture(scope="module")
def fitted() -> Any:
    return fit([(X, Y), (X + 1, Y)])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: p.interval(X), "level between 0 and 1, got ndarray; interval is about parameters"),
        (lambda p: p.interval("90%"), "level between 0 and 1, got '90%'"),
        (lambda p: p.interval(90), "level between 0 and 1, got 90"),
        (lambda p: p.draws("many"), "at least one draw, a whole number, got 'many'"),
        (lambda p: p.draws(2.5), "at least one draw, a whole number, got 2.5"),
        (lambda p: p.draws(10**12, using="gaussian"), "at most 10000000 draws"),
        (lambda p: p.draws(seed=-1), "a seed from 0 to 4294967295, a whole number, got -1"),
        (lambda p: p.sample(seed="a"), "a seed from 0 .* got 'a'"),
        (lambda p: p.sample(sampler="long"), r"sampler: expected .*Sampler\(\.\.\.\), got 'long'"),
        (lambda p: p.predict(X, seed=None), "a seed from 0 .* got None"),
        (lambda p: p.entropy(X, draws=0), "at least one draw"),
        (lambda p: p.to_arviz(seed=1.5), "a seed from 0 .* got 1.5"),
        (lambda p: p.predict(X.astype(complex)), "x: expected numbers, got complex128"),
        (lambda p: p.save(3), "expected the path of a folder"),
        (lambda p: p.predict_proba(MASKED), "masked"),
    ],
)
def test_a_posterior_refuses_it_in_a_sentence(fitted: Any, call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        call(fitted)


@pytest.mark.parametrize(
    ("options", "clients", "said"),
    [
        ({}, [None] * 40, "expected a client for every row, got none .* for 40 rows, the first is 0"),
        ({}, np.where(Y, 1.0, np.nan), "expected a client for every row"),
        ({"settings": [1]}, Y, r"settings: expected a dict of sections, got \[1\]"),
    ],
)
def test_an_estimator_refuses_it_as_scikit_learn_does(options: dict[str, Any], clients: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FederatedClassifier(rounds=1, **options).fit(X, Y, clients=clients)


def test_a_client_is_barred_by_its_name() -> None:
    posterior = fedstein.fit(
        "blr", FRAME, client="site", target="y", rounds=2, selection__barred=["north"], sites__expand="mean"
    )
    assert [record["selected"] for record in posterior.rounds] == [[1], [1]]


@pytest.mark.parametrize(
    ("column", "options", "said"),
    [
        (["1_001", "1_002"], {}, None),  # codes, not the numbers 1001 and 1002
        (["3 Jan 2024", "May 5, 2024"], {}, "got a date .'3 Jan 2024'"),
        (["", ""], {}, "expected a value in column 'a'"),
        (["", ""], {"missing": "mean"}, "column 'a' has no value in any row; leave it out"),
        (["u", "v"], {"labels": [0, "0", 1]}, "data.labels to list every label once"),
        (["20240131", "20240201"], {}, "p.*csv: column 'a' looks like dates written as integers .20240131 on line 2"),
        (["20240131", "20240201"], {"target": "a"}, "'a' .data.target., got a date .'20240131' on line 2"),
        (["20240131", "20240201"], {"target": "a", "task": "regression"}, "'a' .data.target., got a date"),
        (["2024-01-31", "2024-02-01"], {"target": "a"}, "'a' .data.target., got a date .'2024-01-31' on line 2"),
        (["u", "v"], {"features": "a"}, "data.features: expected a list of names of columns, as text, got 'a'"),
    ],
)
def test_cells_of_a_file(tmp_path: Path, column: list[str], options: dict[str, Any], said: str | None) -> None:
    file = tmp_path / "patients.csv"
    FRAME[["a", "b", "y"]].assign(a=column * 20).to_csv(file, index=False)
    if said is None:
        names = load("file", path=str(file), **options).feature_names
        assert names == ("a=1_001", "a=1_002", "b")
    else:
        with pytest.raises(InputError, match=said):
            load("file", path=str(file), **options)


@pytest.mark.parametrize(
    ("column", "options"),
    [
        ([20240131, 20249901], {}),  # not every number is a date
        ([20240131, 20240201], {"features": ["a", "b"]}),
        ([20240131, 20240201], {"categories": ["a"]}),
        ([20240131, 20240201], {"target": "a", "labels": ["20240131", "20240201"]}),
    ],
)
def test_integers_that_the_user_has_named_are_not_dates(tmp_path: Path, column: Any, options: dict[str, Any]) -> None:
    file = tmp_path / "patients.csv"
    FRAME[["a", "b", "y"]].assign(a=column * 20).to_csv(file, index=False)
    assert load("file", path=file, **options).train_x.shape[0] == 32


@pytest.mark.parametrize("path", [3, [3], b"rows.csv", {"a": 1}, [""]])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(InputError, match=r"data\.path to be a file, a folder, .* as text, got"):
        load("file", path=path)
