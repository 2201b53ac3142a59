"""What ``fedstein.fit`` takes as clients: names, DataFrames of pandas and Polars, labels of any type."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from small_run import SMALL_FIT

import fedstein
from fedstein.data.label_coding import code_labels, coded, read_labels
from fedstein.models import custom

SMALL = {**SMALL_FIT, "rounds": 3}


def frames(labels=(0, 1)):
    """Two hospitals with the columns age and dose; the outcome follows the dose."""
    rng = np.random.default_rng(0)
    made = {}
    for name, shift in (("east", -0.5), ("west", 0.5)):
        age, dose = rng.normal(shift, 1, 40), rng.normal(0, 1, 40)
        made[name] = pd.DataFrame(
            {"age": age, "dose": dose, "ill": np.where(dose + 0.2 * age > 0, labels[1], labels[0])}
        )
    return made


def arrays():
    return [(f[["age", "dose"]].to_numpy(np.float32), f["ill"].to_numpy()) for f in frames().values()]


@pytest.fixture(scope="module")
def plain():
    return fedstein.fit("blr", arrays(), **SMALL)


def shuffled(frame):
    return frame[["ill", "dose", "age"]]


def everybody():
    parts = [f.assign(hospital=name) for name, f in frames().items()]
    return pd.concat(parts, ignore_index=True)


FORMS = {
    "dict of frames": lambda: (frames(), {"target": "ill"}),
    "another order of columns": lambda: ({**frames(), "west": shuffled(frames()["west"])}, {"target": "ill"}),
    "list of Polars frames": lambda: ([pl.from_pandas(f) for f in frames().values()], {"target": "ill"}),
    "one frame": lambda: (everybody(), {"target": "ill", "client": "hospital"}),
    "one Polars frame": lambda: (pl.from_pandas(everybody()), {"target": "ill", "client": "hospital"}),
    "pairs of frame and series": lambda: ([(f[["age", "dose"]], f["ill"]) for f in frames().values()], {}),
    "dict of arrays": lambda: (dict(zip(("east", "west"), arrays(), strict=True)), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_clients_gives_the_same_bits(plain, form):
    clients, more = FORMS[form]()
    posterior = fedstein.fit("blr", clients, **more, **SMALL)
    np.testing.assert_array_equal(posterior.particles, plain.particles)
    assert posterior.client_names == (("client-0", "client-1") if isinstance(clients, list) else ("east", "west"))
    if form != "dict of arrays":
        assert posterior.names[:3] == ("age", "dose", "intercept")
        rows = frames()["west"]
        expected = plain.predict(rows[["age", "dose"]].to_numpy(np.float32))
        np.testing.assert_array_equal(posterior.predict(rows[["dose", "age"]]), expected)
        np.testing.assert_array_equal(posterior.predict(pl.from_pandas(rows[["dose", "age"]])), expected)


def test_a_posterior_of_frames_refuses_other_columns(plain):
    posterior = fedstein.fit("blr", frames(), target="ill", **SMALL)
    rows = frames()["west"]
    assert len(posterior.predict(rows)) == 40  # the target may be there
    with pytest.raises(fedstein.InputError, match="x: expected the columns dose, which are missing"):
        posterior.predict(rows[["age"]])
    with pytest.raises(fedstein.InputError, match="got also weight; drop them"):
        posterior.predict(rows.assign(weight=1.0))
    with pytest.warns(UserWarning, match="taken by position, but .* have names: age, dose; pass a DataFrame"):
        posterior.predict(rows[["age", "dose"]].to_numpy(np.float32))
    with pytest.raises(fedstein.InputError, match="columns have no names"):
        plain.predict(rows[["age", "dose"]])


def wrong_frames():
    good = frames()
    east, west = good["east"], good["west"]
    return [
        (
            {"a": east, "b": west.drop(columns="dose")},
            {"target": "ill"},
            "client 'b': expected the columns dose, which are missing",
        ),
        ({"a": east, "b": west.assign(extra=1)}, {"target": "ill"}, "client 'b': .* got also extra; drop"),
        ({"a": east, "b": west.drop(columns="ill")}, {"target": "ill"}, r"client 'b': .*column 'ill' \(target='ill'\)"),
        (good, {}, "client 'east': a DataFrame needs target="),
        ([east, arrays()[0]], {"target": "ill"}, "client 1: got an array.*DataFrames throughout"),
        ([arrays()[0], east], {"target": "ill"}, "client 1.*DataFrames throughout"),
        (east, {"target": "ill"}, "one DataFrame needs client= and target="),
        (east, {"target": "ill", "client": "site"}, r"column 'site' \(client='site'\)"),
        (good, {"target": "ill", "client": "age"}, "client='age' names a column of one DataFrame"),
        (arrays(), {"target": "ill"}, "target='ill' names a column of DataFrames"),
        ([east.assign(age="old")], {"target": "ill"}, "has only one category .'old'"),
        (
            [east.assign(age=east["age"].where(east.index != 3))],
            {"target": "ill"},
            "client 0: .*'age', got a missing value in row 3; .*data__missing='mean'",
        ),
        ([east.assign(age=pd.array([None] + [1] * 39, dtype="Int64"))], {"target": "ill"}, "a missing value in row 0"),
        ([east.assign(age=pd.Timestamp("2026-01-01"))], {"target": "ill"}, "'age' holds dates or times"),
        ([east.assign(ill=[None] + ["a", "b", "b"] * 13)], {"target": "ill"}, "expected a label in every row.*row 0"),
        ([(east[["age", "dose"]], east["ill"][::-1])], {}, "same index in another order"),
        ([pd.concat([east, east[["age"]]], axis=1)], {"target": "ill"}, "age twice"),
        ("rows.csv", {}, "a dict, a list or a DataFrame, got str"),
    ]


@pytest.mark.parametrize("case", range(len(wrong_frames())))
def test_wrong_frames_are_refused_by_client_and_column(case):
    clients, more, words = wrong_frames()[case]
    with pytest.raises(fedstein.InputError, match=words):
        fedstein.fit("blr", clients, **more, **SMALL)


@pytest.mark.parametrize(
    ("pair", "labels"),
    [
        (("healthy", "ill"), ("healthy", "ill")),
        ((1, 2), (1, 2)),
        ((False, True), (False, True)),
        ((-1.0, 1.0), (-1, 1)),
        ((0, 1), (0, 1)),
    ],
)
def test_labels_keep_their_names(plain, pair, labels):
    made = frames(pair)
    posterior = fedstein.fit("blr", made, target="ill", test=made["east"], **SMALL)
    assert posterior.labels == labels
    assert [type(label) for label in posterior.labels] == [type(label) for label in labels]
    np.testing.assert_array_equal(posterior.particles, plain.particles)
    expected = np.array(labels)[posterior.predict(made["west"]).argmax(axis=1)]
    np.testing.assert_array_equal(posterior.predict_class(made["west"]), expected)
    assert posterior.rounds[-1]["accuracy"] > 0.5


def test_test_rows_have_no_label_that_nobody_trained_on():
    made = frames(("healthy", "ill"))
    with pytest.raises(fedstein.InputError, match="test: expected one of the labels 'healthy', 'ill', got 'dead'"):
        fedstein.fit("blr", made, target="ill", test=made["east"].assign(ill="dead"), **SMALL)


def test_numbers_are_classes_of_a_model_of_ones_own_as_they_are():
    """A model of one's own may mean something by -1 and 1, so they are not renumbered behind its back."""
    model = custom(
        2,
        log_prior=lambda theta: -0.5 * theta @ theta,
        log_likelihood=lambda theta, x, y: -np.log(2) + 0 * x @ theta,
        init=lambda key: np.zeros(2, np.float32),
        predict=lambda theta, x: np.log(0.5) + 0 * np.zeros((1, 2)) + 0 * (x @ theta)[:, None],
        classes=2,
    )
    made = frames((-1, 1))
    with pytest.raises(fedstein.InputError, match="labels from 0 to 1"):
        fedstein.fit(model, made, target="ill", **SMALL)
    with pytest.raises(fedstein.InputError, match="has 2 classes, the clients have the labels 'a', 'b', 'c'"):
        fedstein.fit(model, [(np.zeros((3, 2), np.float32), np.array(list("abc")))], **SMALL)


def test_labels_are_numbered_in_sorted_order_and_back():
    labels, (a, b) = code_labels([np.array(["b", "c"]), np.array(["a", "b"])], ["one", "two"])
    assert labels == ("a", "b", "c")
    assert a.tolist() == [1, 2]
    assert b.tolist() == [0, 1]
    assert coded(np.array(["c"]), labels, "test").tolist() == [2]
    assert code_labels([np.array([0, 3])], ["one"])[0] == (0, 1, 2, 3)  # as they are, although two do not occur
    assert code_labels([np.array([1, 9])], ["one"])[0] == (1, 9)
    for labels in (("a", "b"), (1, 9), (False, True)):
        kind = {str: "text", int: "int", bool: "bool"}[type(labels[0])]
        assert read_labels([str(label) for label in labels], kind) == labels


def test_float64_arrays_are_refused_with_the_remedy_and_frames_are_cast(plain):
    wide = [(x.astype(np.float64), y) for x, y in arrays()]
    with pytest.raises(fedstein.InputError, match=r"x\.astype\('float32'\), or turn the flag on.*jax_enable_x64"):
        fedstein.fit("blr", wide, **SMALL)
    assert plain.particles.dtype == np.float32


def test_regression_targets_may_be_missing_nowhere():
    made = {name: f.drop(columns="ill").assign(y=f["dose"]) for name, f in frames().items()}
    made["west"].loc[2, "y"] = np.nan
    with pytest.raises(fedstein.InputError, match="client 'west': expected a finite target, got nan in row 2"):
        fedstein.fit("linear", made, target="y", **SMALL)
    with pytest.raises(fedstein.InputError, match="client 'east': expected numbers as targets"):
        fedstein.fit("linear", {"east": made["east"].assign(y="high")}, target="y", **SMALL)


def mixed():
    """Hospitals with a category, one of which is missing somewhere, and a number that is missing somewhere."""
    made = frames()
    for k, frame in enumerate(made.values()):
        frame["ward"] = np.array(["a", "b", "c"])[(np.arange(40) + k) % (2 + k)]
        frame.loc[3 + k, "dose"] = np.nan
    return made


def test_categories_and_missing_values_are_coded_alike_everywhere(tmp_path):
    made = mixed()
    with pytest.raises(fedstein.InputError, match=r"client 'east': .*'dose', got a missing value in row 3"):
        fedstein.fit("blr", made, target="ill", **SMALL)
    posterior = fedstein.fit("blr", made, target="ill", data__missing="mean", out=tmp_path / "run", **SMALL)
    assert posterior.names == ("age", "dose", "ward=a", "ward=b", "ward=c", "intercept", "log xi")
    mean = pd.concat(made.values())["dose"].mean()
    by_hand = {}
    for name, frame in made.items():
        filled = frame.assign(dose=frame["dose"].fillna(mean))
        dummies = {f"ward={ward}": (frame["ward"] == ward).astype(float) for ward in "abc"}
        by_hand[name] = filled.drop(columns="ward").assign(**dummies)
    expected = fedstein.fit("blr", by_hand, target="ill", **SMALL)
    np.testing.assert_array_equal(posterior.particles, expected.particles)
    rows = made["west"][["ward", "dose", "age"]]
    for each in (posterior, fedstein.load(tmp_path / "run"), fedstein.load(posterior.save(tmp_path / "saved"))):
        np.testing.assert_array_equal(each.predict(rows), expected.predict(by_hand["west"]))
        np.testing.assert_array_equal(each.predict(pl.from_pandas(rows)), expected.predict(by_hand["west"]))
    with pytest.raises(fedstein.InputError, match="got 'z' on row 0"):
        posterior.predict(rows.assign(ward="z"))


def test_columns_can_be_chosen_and_identifiers_are_refused(plain):
    made = {name: frame.assign(id=np.arange(40)) for name, frame in frames().items()}
    with pytest.raises(fedstein.InputError, match="'id' has an integer that is different in every row"):
        fedstein.fit("blr", made, target="ill", **SMALL)
    for chosen in ({"data__drop": ["id"]}, {"data__features": ["age", "dose"]}):
        posterior = fedstein.fit("blr", made, target="ill", **chosen, **SMALL)
        np.testing.assert_array_equal(posterior.particles, plain.particles)
        assert len(posterior.predict(made["west"])) == 40
    with pytest.raises(fedstein.InputError, match=r"columns of data\.drop, got no idd"):
        fedstein.fit("blr", made, target="ill", data__drop=["idd"], **SMALL)
    with pytest.raises(fedstein.InputError, match="are for DataFrames, got arrays"):
        fedstein.fit("blr", arrays(), data__drop=["id"], **SMALL)


def test_types_of_columns_say_that_they_hold_categories():
    made = {name: frame.assign(ward=pd.Categorical(np.arange(40) % 3)) for name, frame in frames().items()}
    assert fedstein.fit("blr", made, target="ill", **SMALL).names[2:5] == ("ward=0", "ward=1", "ward=2")
    ward = pl.Series("ward", list("abcd") * 10, pl.Categorical)
    polars = [pl.from_pandas(frame).with_columns(ward) for frame in frames().values()]
    assert fedstein.fit("blr", polars, target="ill", **SMALL).names[2:4] == ("ward=a", "ward=b")
